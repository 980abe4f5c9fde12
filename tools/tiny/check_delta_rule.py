"""Compares the training-time operations with transformers' own, values and gradients.

    python check_delta_rule.py [--device cuda] [--implementation torch|fla] [--tolerance 1e-4]
"""

import argparse
import time

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

import delta_rule


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.float() - b.float()).abs().max() / b.float().abs().max().clamp_min(1e-20)).item()


def gradients(rule, inputs: dict[str, torch.Tensor], direction: torch.Tensor):
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    query, key, value, g, beta = leaves.values()
    output = rule(query, key, value, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]
    (output.float() * direction).sum().backward()
    return output, {name: x.grad for name, x in leaves.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--implementation", default="torch", choices=("torch", "fla"))
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()

    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    shape = (options.batch, options.tokens, 6)
    device = options.device
    # Repeated keys with beta near one and little decay are the hard case of the triangular solve.
    key = torch.randn(*shape, 128, device=device)
    key[:, 10:60] = key[:, 10:11]
    inputs = {
        "query": torch.randn(*shape, 128, device=device).to(dtype),
        "key": key.to(dtype),
        "value": torch.randn(*shape, 128, device=device).to(dtype),
        "g": -torch.rand(*shape, device=device) * 0.1,
        "beta": torch.sigmoid(torch.randn(*shape, device=device) * 3).to(dtype),
    }
    direction = torch.randn(*shape, 128, device=device)
    reference = modeling.torch_chunk_gated_delta_rule
    expected, expected_gradients = gradients(
        reference, {n: x.float() for n, x in inputs.items()}, direction
    )
    rule = delta_rule.chunk_gated_delta_rule
    if options.implementation == "fla":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as rule
    output, found = gradients(rule, inputs, direction)
    errors = {"output": difference(output, expected)}
    errors |= {name: difference(found[name], expected_gradients[name]) for name in inputs}

    mixed = torch.randn(2, 24, 50)
    weight = torch.randn(24, 4)
    errors["conv"] = difference(
        delta_rule.causal_conv1d(mixed, weight, activation="silu"),
        modeling.causal_conv1d_fn(mixed, weight, activation="silu"),
    )
    print({name: f"{error:.1e}" for name, error in errors.items()})
    if device == "cuda":
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(10):
            gradients(rule, inputs, direction)
        torch.cuda.synchronize()
        print(f"{(time.time() - start) * 100:.2f} ms forward and backward")
    worst = max(errors, key=errors.get)
    if not errors[worst] < options.tolerance:
        raise SystemExit(f"{worst} differs by {errors[worst]:.1e}")


if __name__ == "__main__":
    main()
