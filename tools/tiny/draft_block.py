"""The backbone that DFlash2 and DSpark share: Qwen3-like layers over a block of drafted rows.

A block is the anchor (the last token chosen, at position `start`) followed by mask tokens. Its rows
attend to one another in both directions and to the context, which is the target's residual stream
after some of its layers at positions before `start`. Many blocks of one sequence are computed at
once: they share the context, and each sees the part before its own start. Parameter names are the
published ones; norms scale by w, not by 1 + w as the target's do.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    vocabulary: int  # rows of the target's embedding
    real_vocabulary: int  # of these, rows that are tokens
    mask_token: int
    target_layer_ids: tuple[int, ...] = (1, 4, 6)
    hidden: int = 320
    intermediate: int = 512
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 1e6
    eps: float = 1e-6


@dataclass
class Blocks:
    """Blocks of some rows, and what the target says about each of the drafts.

    features [rows, tokens, layers * hidden]; starts [rows, blocks]; tokens [rows, blocks,
    1 + drafts] the anchor and the text after it; best [rows, blocks, drafts] the target's best
    token at start + 1 and on; counted [rows, blocks, drafts] is false outside the document and
    where the text before the draft is not what the target itself would say.
    """

    features: torch.Tensor
    starts: torch.Tensor
    tokens: torch.Tensor
    best: torch.Tensor
    counted: torch.Tensor


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    made = nn.Linear(inputs, outputs, bias)
    nn.init.normal_(made.weight, std=inputs**-0.5)
    return made


def rotate(x, positions, theta: float):
    """x [rows, tokens, heads, head_dim], positions [rows, tokens]: rotary over all of head_dim."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, device=x.device).float() / half)
    angles = positions[..., None].float() * frequencies
    cos, sin = angles.cos()[:, :, None].to(x.dtype), angles.sin()[:, :, None].to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
        self.q_proj = linear(shape.hidden, queries)
        self.k_proj = linear(shape.hidden, keys)
        self.v_proj = linear(shape.hidden, keys)
        self.o_proj = linear(queries, shape.hidden)
        nn.init.normal_(self.o_proj.weight, std=(queries * 2 * shape.layers) ** -0.5)
        self.q_norm = RMSNorm(shape.head_dim, shape.eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.eps)

    def heads(self, x, norm, positions):
        """x [rows, ..., heads * head_dim] -> [rows, heads, tokens, head_dim], tokens flattened."""
        x = x.reshape(x.shape[0], -1, x.shape[-1] // self.shape.head_dim, self.shape.head_dim)
        if norm is not None:
            x = rotate(norm(x), positions.reshape(x.shape[0], -1), self.shape.rope_theta)
        return x.transpose(1, 2)

    def forward(self, x, context, positions, context_positions, hidden_context):
        """x [rows, blocks, slots, hidden], context [rows, tokens, hidden] -> as x.

        hidden_context [rows, blocks, tokens] is true where a block may not look.
        """
        rows, blocks, slots, _ = x.shape
        shape, tokens = self.shape, context.shape[1]
        query = self.heads(self.q_proj(x), self.q_norm, positions)
        own_key = self.heads(self.k_proj(x), self.k_norm, positions)
        own_value = self.heads(self.v_proj(x), None, None)
        key = self.heads(self.k_proj(context), self.k_norm, context_positions)
        value = self.heads(self.v_proj(context), None, None)

        groups = shape.heads // shape.key_value_heads
        query = query.reshape(rows, shape.key_value_heads, groups, blocks, slots, shape.head_dim)
        query = query * shape.head_dim**-0.5
        own_key, own_value = (
            t.reshape(rows, shape.key_value_heads, 1, blocks, slots, shape.head_dim)
            for t in (own_key, own_value)
        )
        far = (query.flatten(2, 4) @ key.mT).view(*query.shape[:-1], tokens)
        far = far.masked_fill(hidden_context[:, None, None, :, None], float("-inf"))
        scores = torch.cat((far, query @ own_key.mT), dim=-1)
        weights = scores.softmax(-1).to(value.dtype)
        far_weights, own_weights = weights.split((tokens, slots), dim=-1)
        far_output = (far_weights.flatten(2, 4) @ value).view_as(query)
        output = far_output + own_weights @ own_value
        output = output.permute(0, 3, 4, 1, 2, 5).reshape(rows, blocks, slots, -1)
        return self.o_proj(output)


class MLP(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = linear(shape.hidden, shape.intermediate)
        self.up_proj = linear(shape.hidden, shape.intermediate)
        self.down_proj = linear(shape.intermediate, shape.hidden)
        nn.init.normal_(self.down_proj.weight, std=(shape.intermediate * 2 * shape.layers) ** -0.5)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape)

    def forward(self, x, *context):
        x = x + self.self_attn(self.input_layernorm(x), *context)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """fc, hidden_norm, layers and norm; subclasses add heads and say how a loss is made."""

    slots: int  # rows of a block
    drafts: int

    def __init__(self, shape: Shape, layer=Layer):
        super().__init__()
        self.shape = shape
        self.fc = linear(len(shape.target_layer_ids) * shape.hidden, shape.hidden)
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.layers = nn.ModuleList([layer(shape) for _ in range(shape.layers)])
        self.norm = RMSNorm(shape.hidden, shape.eps)

    def block(self, features, starts, anchors, embedding):
        """The normed hidden states [rows, blocks, slots, hidden] of blocks begun by `anchors`."""
        context = self.hidden_norm(self.fc(features))
        tokens = anchors.new_full((*anchors.shape, self.slots), self.shape.mask_token)
        tokens[..., 0] = anchors
        x = F.embedding(tokens, embedding)
        positions = starts[..., None] + torch.arange(self.slots, device=starts.device)
        context_positions = torch.arange(features.shape[1], device=starts.device)
        hidden_context = context_positions >= starts[..., None]
        context_positions = context_positions.expand(features.shape[:2])
        for layer in self.layers:
            x = layer(x, context, positions, context_positions, hidden_context)
        return self.norm(x)

    def logits(self, hidden, embedding):
        """The target's head over real tokens only."""
        return F.linear(hidden, embedding[: self.shape.real_vocabulary]).float()


def weighted_mean(each, weights):
    return (each * weights).sum() / weights.sum().clamp(min=1e-6)


def slot_weights(counted, decay: float = 4.0):
    """Weights of the counted drafts: one matters only if those before it were accepted."""
    by_slot = torch.exp(-torch.arange(counted.shape[-1], device=counted.device) / decay)
    return by_slot.expand(counted.shape)[counted]
