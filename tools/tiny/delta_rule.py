"""The gated delta rule and the short convolution, written to train fast under torch.compile.

Both compute what transformers' own functions compute (check_delta_rule.py compares them) and
replace them in its Qwen3.5 model class while training; scoring uses transformers unchanged.
"""

import torch
import torch.nn.functional as F

CHUNK = 64  # tokens solved together; the state is carried from chunk to chunk
BLOCK = 16  # diagonal blocks inverted by a power series, small enough to stay accurate


class UnitLowerInverse(torch.autograd.Function):
    """The inverse of I + L for strictly lower triangular L [..., CHUNK, CHUNK]."""

    @staticmethod
    def forward(ctx, lower: torch.Tensor) -> torch.Tensor:
        inverse = unit_lower_inverse(lower)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        (inverse,) = ctx.saved_tensors
        transposed = inverse.mT
        return -(transposed @ gradient @ transposed).tril(-1)


def unit_lower_inverse(lower: torch.Tensor) -> torch.Tensor:
    size = lower.shape[-1]
    if size == BLOCK:
        # L is nilpotent, so the series ends: sum (-L)^i = (I - L)(I + L^2)(I + L^4)(I + L^8).
        identity = torch.eye(size, dtype=lower.dtype, device=lower.device)
        inverse, power = identity - lower, lower @ lower
        for _ in range(3):
            inverse, power = inverse + inverse @ power, power @ power
        return inverse
    half = size // 2
    blocks = torch.stack((lower[..., :half, :half], lower[..., half:, half:]))
    upper_left, lower_right = unit_lower_inverse(blocks)
    lower_left = -(lower_right @ lower[..., half:, :half] @ upper_left)
    top = torch.cat((upper_left, torch.zeros_like(lower_left)), dim=-1)
    return torch.cat((top, torch.cat((lower_left, lower_right), dim=-1)), dim=-2)


def normalized(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def chunk_gated_delta_rule(query, key, value, g, beta, **_):
    """query, key [batch, tokens, heads, key_dim], value [.., value_dim], g and beta [.., heads].

    Returns the output [batch, tokens, heads, value_dim] and no final state.
    """
    with torch.autocast(query.device.type, enabled=False):
        batch, tokens, heads, key_dim = query.shape
        chunks = tokens // CHUNK
        assert tokens % CHUNK == 0, f"{tokens} tokens are not a multiple of {CHUNK}"

        def chunked(x):  # [batch, heads, chunks, CHUNK, ...]
            return x.transpose(1, 2).float().reshape(batch, heads, chunks, CHUNK, *x.shape[3:])

        q = chunked(normalized(query.float())) * key_dim**-0.5
        k = chunked(normalized(key.float()))
        v, decay, b = chunked(value), chunked(g).cumsum(-1), chunked(beta)[..., None]

        # How much of what token j wrote is left at token i >= j of the same chunk.
        between = (decay[..., :, None] - decay[..., None, :]).tril().exp().tril()
        solve = UnitLowerInverse.apply(((k * b) @ k.mT * between).tril(-1))
        fresh = solve @ (v * b)
        erased = solve @ (k * b * decay.exp()[..., None])
        attention = (q @ k.mT) * between
        q = q * decay.exp()[..., None]
        k = k * (decay[..., -1:] - decay).exp()[..., None]
        kept = decay[..., -1].exp()[..., None, None]

        state = torch.zeros(batch, heads, key_dim, v.shape[-1], device=v.device)
        outputs = []
        for i in range(chunks):
            written = fresh[:, :, i] - erased[:, :, i] @ state
            outputs.append(q[:, :, i] @ state + attention[:, :, i] @ written)
            state = state * kept[:, :, i] + k[:, :, i].mT @ written
        output = torch.stack(outputs, dim=2).reshape(batch, heads, tokens, -1)
        return output.transpose(1, 2).to(query.dtype), None


def causal_conv1d(hidden_states, weight, bias=None, activation=None, **_):
    """hidden_states [batch, channels, tokens], weight [channels, taps]: a sum of shifted copies."""
    assert bias is None and activation == "silu"
    taps, tokens = weight.shape[-1], hidden_states.shape[-1]
    padded = F.pad(hidden_states, (taps - 1, 0))
    total = sum(
        padded[..., tap : tap + tokens].float() * weight[:, tap, None].float()
        for tap in range(taps)
    )
    return F.silu(total).to(hidden_states.dtype)


def install(implementation: str) -> None:
    """Replaces transformers' functions; implementation is `torch` or `fla`."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

    rule = chunk_gated_delta_rule
    if implementation == "fla":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as rule
    modeling.torch_chunk_gated_delta_rule = rule
    modeling.causal_conv1d_fn = causal_conv1d
