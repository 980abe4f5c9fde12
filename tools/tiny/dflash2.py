"""DFlash2: convolutions over the block around each sub-layer, and a selector that walks candidates.

Slot k >= 1 of a block of eight predicts the token at start + k; the anchor's slot predicts nothing.
"""

import torch
import torch.nn.functional as F
from torch import nn

import draft_block
from draft_block import linear, slot_weights, weighted_mean

TAPS, GROUP = 2, 16
RANK, CANDIDATES = 64, 16


class BlockConvolution(nn.Module):
    """Taps over the slots of a block: a base kernel a channel, one a group made of the input."""

    def __init__(self, width: int):
        super().__init__()
        base = torch.zeros(2, TAPS, width)
        base[:, 0] = 1.0
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = linear(width, 2 * TAPS * (width // GROUP))
        nn.init.zeros_(self.kernel_projection.weight)

    def kernels(self, x):
        """x [.., slots, width] -> kernels [.., slots, TAPS, width] before and after a sub-layer."""
        delta = self.kernel_projection(x).unflatten(-1, (2, TAPS, -1))
        kernels = self.base_kernel + delta.repeat_interleave(GROUP, dim=-1)
        return kernels.to(x.dtype).unbind(-3)

    @staticmethod
    def apply_kernel(x, kernel):
        before = F.pad(x, (0, 0, 1, 0))[..., :-1, :]
        return kernel[..., 0, :] * x + kernel[..., 1, :] * before


class Layer(draft_block.Layer):
    def __init__(self, shape):
        super().__init__(shape)
        self.attention_conv = BlockConvolution(shape.hidden)
        self.mlp_conv = BlockConvolution(shape.hidden)

    def forward(self, x, *context):
        normed = self.input_layernorm(x)
        before, after = self.attention_conv.kernels(normed)
        conv = BlockConvolution.apply_kernel
        x = x + conv(self.self_attn(conv(normed, before), *context), after)
        normed = self.post_attention_layernorm(x)
        before, after = self.mlp_conv.kernels(normed)
        return x + conv(self.mlp(conv(normed, before)), after)


class CandidateSelector(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.randn(shape.vocabulary, RANK))
        self.successor_codebook = nn.Parameter(torch.zeros(shape.vocabulary, RANK))
        self.hidden_projection = linear(shape.hidden, RANK)

    def edges(self, hidden, previous, candidates, values):
        """Scores of candidates [.., CANDIDATES] after the token previous [..]."""
        left = self.predecessor_codebook[previous] * self.hidden_projection(hidden)
        right = self.successor_codebook[candidates]
        return values + (left[..., None, :] * right).sum(-1)


class DFlash2(draft_block.Backbone):
    name, title = "dflash2", "DFlash2"
    slots, drafts = 8, 7
    heads_of_its_own = (
        f"convolutions of {TAPS} taps in groups of {GROUP}; a selector of rank {RANK} over"
        f" {CANDIDATES} candidates"
    )

    def __init__(self, shape):
        super().__init__(shape, Layer)
        self.candidate_selector = CandidateSelector(shape)

    def losses(self, blocks, embedding):
        """The loss, and whether each draft [rows, blocks, drafts] is the target's best token."""
        hidden = self.block(blocks.features, blocks.starts, blocks.tokens[..., 0], embedding)
        counted = blocks.counted
        hidden, best = hidden[..., 1:, :][counted], blocks.best[counted]
        logits = self.logits(hidden, embedding)
        candidates = logits.detach().topk(CANDIDATES).indices
        missing = (candidates != best[:, None]).all(-1)
        # A best token that is no candidate takes the last one's place while training.
        candidates[:, -1] = torch.where(missing, best, candidates[:, -1])
        edges = self.candidate_selector.edges(
            hidden, blocks.tokens[..., :-1][counted], candidates, logits.gather(-1, candidates)
        )
        wanted = (candidates == best[:, None]).int().argmax(-1)
        weights = slot_weights(counted)
        loss = weighted_mean(F.cross_entropy(logits, best, reduction="none"), weights)
        loss = loss + weighted_mean(F.cross_entropy(edges, wanted, reduction="none"), weights)
        right = torch.zeros_like(counted)
        right[counted] = (edges.argmax(-1) == wanted) & ~missing
        return loss, right

    @torch.inference_mode()
    def draft(self, features, starts, anchors, embedding):
        """Greedy drafts [rows, blocks, drafts]; there is no confidence."""
        hidden = self.block(features, starts, anchors, embedding)[..., 1:, :]
        values, candidates = self.logits(hidden, embedding).topk(CANDIDATES)
        drafts, previous = [], anchors
        for slot in range(self.drafts):
            edges = self.candidate_selector.edges(
                hidden[..., slot, :], previous, candidates[..., slot, :], values[..., slot, :]
            )
            chosen = edges.argmax(-1, keepdim=True)
            previous = candidates[..., slot, :].gather(-1, chosen).squeeze(-1)
            drafts.append(previous)
        return torch.stack(drafts, dim=-1), None

    def configuration(self) -> dict:
        return {
            "architectures": ["DFlash2DraftModel"],
            "block_size": self.slots,
            "dflash_config": {
                "block_size": self.slots,
                "target_layer_ids": list(self.shape.target_layer_ids),
                "mask_token_id": self.shape.mask_token,
                "conv_kernel_size": TAPS,
                "conv_group_size": GROUP,
                "selector_rank": RANK,
                "selector_top_k": CANDIDATES,
            },
        }
