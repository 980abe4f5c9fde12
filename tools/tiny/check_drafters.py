"""Compares the drafters' many blocks at once with one block at a time, written out by definition.

    python check_drafters.py --model ../../models/tiny

Weights are random, so every term counts. Also compares the target's features with the entries of
transformers' hidden_states: layer l's output is entry l + 1.
"""

import argparse
from pathlib import Path

import torch

import dflash2
import teacher
from drafters import DRAFTERS

TOKENS, STARTS = 64, (1, 7, 40, 63)
TOLERANCE = 2e-5  # fp32 sums of some hundred terms, relative to the largest value


def rms(x, norm):
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight


def rope(x, position: int, theta: float):
    """x [heads, head_dim]: the pair (i, i + half) turns by position * theta^(-i / half)."""
    half = x.shape[-1] // 2
    turned = torch.empty_like(x)
    for i in range(half):
        angle = torch.tensor(position * theta ** (-i / half))
        turned[:, i] = x[:, i] * angle.cos() - x[:, i + half] * angle.sin()
        turned[:, i + half] = x[:, i + half] * angle.cos() + x[:, i] * angle.sin()
    return turned


def attention(own, x, context, start: int, shape):
    """x [slots, hidden], context [start, hidden] -> [slots, hidden]."""
    rows = [(c, p) for p, c in enumerate(context)] + [(r, start + k) for k, r in enumerate(x)]
    heads = (-1, shape.head_dim)
    keys = torch.stack(
        [rope(rms(own.k_proj(r).view(heads), own.k_norm), p, shape.rope_theta) for r, p in rows]
    )
    values = torch.stack([own.v_proj(r).view(heads) for r, _ in rows])
    outputs = []
    for slot, row in enumerate(x):
        query = rope(rms(own.q_proj(row).view(heads), own.q_norm), start + slot, shape.rope_theta)
        mixed = []
        for head in range(shape.heads):
            shared = head // (shape.heads // shape.key_value_heads)
            scores = keys[:, shared] @ query[head] * shape.head_dim**-0.5
            mixed.append(scores.softmax(0) @ values[:, shared])
        outputs.append(own.o_proj(torch.cat(mixed)))
    return torch.stack(outputs)


def convolved(conv, x, normed, side: int):
    """y[k, c] = sum over taps: (base[side, tap, c] + delta[k, side, tap, group]) x[k - tap, c]."""
    y = torch.zeros_like(x)
    for k in range(x.shape[0]):
        delta = conv.kernel_projection(normed[k]).view(2, dflash2.TAPS, -1)[side]
        for tap in range(min(dflash2.TAPS, k + 1)):
            kernel = conv.base_kernel[side, tap] + delta[tap].repeat_interleave(dflash2.GROUP)
            y[k] += kernel * x[k - tap]
    return y


def block(drafter, features, start: int, anchor: int, embedding):
    """The hidden states [slots, hidden] of one block whose context is features [start, ..]."""
    context = rms(drafter.fc(features), drafter.hidden_norm)
    tokens = [anchor] + [drafter.shape.mask_token] * (drafter.slots - 1)
    x = embedding[tokens]
    for layer in drafter.layers:
        for norm, sub_layer, name in (
            (layer.input_layernorm, layer.self_attn, "attention_conv"),
            (layer.post_attention_layernorm, layer.mlp, "mlp_conv"),
        ):
            normed = rms(x, norm)
            conv = getattr(layer, name, None)
            y = normed if conv is None else convolved(conv, normed, normed, 0)
            if sub_layer is layer.self_attn:
                y = attention(sub_layer, y, context, start, drafter.shape)
            else:
                gate = sub_layer.gate_proj(y)
                y = sub_layer.down_proj(gate * gate.sigmoid() * sub_layer.up_proj(y))
            x = x + (y if conv is None else convolved(conv, y, normed, 1))
    return rms(x, drafter.norm)


def drafts(drafter, hidden, anchor: int, embedding) -> list[int]:
    """The greedy walk over a block's hidden states."""
    real = drafter.shape.real_vocabulary
    made, previous = [], anchor
    for k in range(drafter.drafts):
        if drafter.name == "dflash2":
            h, own = hidden[k + 1], drafter.candidate_selector
            values = embedding[:real] @ h
            candidates = values.argsort(descending=True)[: dflash2.CANDIDATES]
            left = own.predecessor_codebook[previous] * own.hidden_projection(h)
            scores = values[candidates] + own.successor_codebook[candidates] @ left
            previous = int(candidates[scores.argmax()])
        else:
            own = drafter.markov_head
            bias = own.markov_w2.weight @ own.markov_w1.weight[previous]
            previous = int((embedding @ hidden[k] + bias)[:real].argmax())
        made.append(previous)
    return made


def confidences(drafter, hidden, anchor: int, made: list[int]):
    return torch.stack([
        torch.sigmoid(
            drafter.confidence_head.proj(
                torch.cat((hidden[k], drafter.markov_head.markov_w1.weight[previous]))
            )
        )[0]
        for k, previous in enumerate([anchor, *made[:-1]])
    ])


def require_close(what: str, got, wanted) -> None:
    error = ((got - wanted).abs().max() / wanted.abs().max()).item()
    print(f"{what}: {error:.1e}")
    assert error < TOLERANCE, f"{what}: {error:.1e} apart, {TOLERANCE:.0e} allowed"


@torch.inference_mode()
def check_drafter(drafter, shape) -> None:
    for weight in drafter.parameters():
        scale = weight.shape[-1] ** -0.5 if weight.ndim == 2 else 1.0
        weight.copy_(torch.randn_like(weight) * scale)
    embedding = torch.randn(shape.vocabulary, shape.hidden)
    features = torch.randn(1, TOKENS, len(shape.target_layer_ids) * shape.hidden)
    anchors = torch.randint(shape.real_vocabulary, (1, len(STARTS)))
    starts = torch.tensor([STARTS])
    together = drafter.block(features, starts, anchors, embedding)
    made, judged = drafter.draft(features, starts, anchors, embedding)
    for i, start in enumerate(STARTS):
        anchor = int(anchors[0, i])
        alone = block(drafter, features[0, :start], start, anchor, embedding)
        require_close(f"{drafter.name} block at {start}", together[0, i], alone)
        walked = drafts(drafter, alone, anchor, embedding)
        assert made[0, i].tolist() == walked, f"{drafter.name} at {start}: {made[0, i]}, {walked}"
        if judged is not None:
            wanted = confidences(drafter, alone, anchor, walked)
            require_close(f"{drafter.name} confidence at {start}", judged[0, i], wanted)


@torch.inference_mode()
def check_features(folder: Path, shape) -> None:
    target = teacher.Teacher(folder, shape, "cpu")
    ids = torch.randint(shape.real_vocabulary, (2, TOKENS))
    features, _ = target(ids)
    states = target.model(input_ids=ids, output_hidden_states=True).hidden_states
    wanted = torch.cat([states[layer + 1] for layer in shape.target_layer_ids], dim=-1)
    assert torch.equal(features, wanted), "features differ from transformers' hidden states"
    print("features: equal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="the target's directory")
    options = parser.parse_args()
    torch.manual_seed(1)
    shape = teacher.shape_of(options.model)
    check_features(options.model, shape)
    for drafter in DRAFTERS.values():
        check_drafter(drafter(shape), shape)


if __name__ == "__main__":
    main()
