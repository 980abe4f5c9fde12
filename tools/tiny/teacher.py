"""What drafters learn from: the target's features and best tokens on rows of training text."""

from pathlib import Path

import torch

import checkpoint
import packing
from draft_block import Blocks, Shape


def shape_of(folder: Path) -> Shape:
    """The drafter's shape for a target directory; the mask is the first row without a token."""
    config = checkpoint.read_json(folder / "config.json")
    added = checkpoint.read_json(folder / "tokenizer.json")["added_tokens"]
    real = max(token["id"] for token in added) + 1
    return Shape(
        vocabulary=config["vocab_size"],
        real_vocabulary=real,
        mask_token=real,
        hidden=config["hidden_size"],
    )


class Teacher:
    """The target, frozen. Keeps the residual stream after some layers, before the final norm."""

    def __init__(self, folder: Path, shape: Shape, device: str):
        self.model, mtp = checkpoint.create(folder)
        checkpoint.load_weights(folder, self.model, mtp)
        self.model.to(device, torch.bfloat16).eval().requires_grad_(False)
        self.embedding = self.model.lm_head.weight
        self.real_vocabulary = shape.real_vocabulary
        self.kept: dict[int, torch.Tensor] = {}
        layers = self.model.model.layers
        assert max(shape.target_layer_ids) < len(layers) - 1, "the last layer is no feature"
        for layer in shape.target_layer_ids:
            layers[layer].register_forward_hook(self.keeper(layer))

    def keeper(self, layer: int):
        def keep(_module, _inputs, output):
            self.kept[layer] = output

        return keep

    @torch.no_grad()
    def __call__(self, ids):
        """ids [rows, tokens] -> features [rows, tokens, layers * hidden], best next tokens."""
        hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
        best = (hidden @ self.embedding[: self.real_vocabulary].T).argmax(-1)
        features = torch.cat([self.kept[layer] for layer in sorted(self.kept)], dim=-1)
        return features, best


def pieces(ids, classes, end_of_text: int):
    """Numbers [rows, tokens] that tell answers and documents apart; 0 where nothing is drafted."""
    kind = torch.where(classes == packing.CONTEXT, 0, classes)
    kind = torch.where(ids == end_of_text, 0, kind)
    border = torch.ones_like(kind, dtype=torch.bool)
    border[:, 1:] = kind[:, 1:] != kind[:, :-1]
    return torch.where(kind > 0, border.cumsum(-1), 0)


def choose_starts(piece, blocks: int):
    """Random anchors [rows, blocks] whose piece goes on after them; every piece is drawn alike.

    Without this, long answers, which are easy to foresee, would fill most of a batch.
    """
    length = torch.zeros_like(piece).scatter_add(1, piece, torch.ones_like(piece)).gather(1, piece)
    going_on = (piece[:, :-1] > 0) & (piece[:, :-1] == piece[:, 1:])
    going_on[:, 0] = False  # a block without context has nothing to read
    wait = torch.empty(going_on.shape, device=piece.device).exponential_() * length[:, :-1]
    wait = wait.masked_fill(~going_on, float("inf"))
    return wait.topk(blocks, dim=-1, largest=False).indices


def blocks_at(starts, ids, piece, features, best, drafts: int) -> Blocks:
    """Cuts blocks at starts [rows, blocks] out of rows and their targets, both [rows, tokens]."""
    length = ids.shape[1]
    offsets = torch.arange(drafts + 1, device=ids.device)
    places = starts[..., None] + offsets
    inside = places < length
    places = places.clamp(max=length - 1)

    def taken(x, at):
        return x.gather(1, at.flatten(1)).view(at.shape)

    tokens, of = taken(ids, places), taken(piece, places)
    said = taken(best, places[..., :-1])
    inside = inside & (of == of[..., :1]) & (of > 0)
    as_said = torch.ones_like(inside[..., 1:])
    as_said[..., 1:] = (tokens[..., 1:-1] == said[..., :-1]).cumprod(-1).bool()
    counted = inside[..., 1:].cumprod(-1).bool() & as_said
    return Blocks(features, starts, tokens, said, counted)
