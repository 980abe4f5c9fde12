"""Writes and reads a drafter's directory, models/tiny-NAME: config.json and model.safetensors."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import checkpoint

LIMIT = 12 << 20  # bytes of a drafter that is shipped


def folder_of(parent: Path, drafter) -> Path:
    return parent / f"tiny-{drafter.name}"


def save(parent: Path, drafter, target_config, history: dict[str, float]) -> Path:
    """Writes bf16 weights under their published names; the target's embedding stays the target's.

    The history of the training goes with the weights: batches, blocks and seconds.
    """
    folder = folder_of(parent, drafter)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in drafter.state_dict().items()
    }
    size = sum(weight.nbytes for weight in tensors.values())
    assert size <= LIMIT, f"{drafter.name}: {size} bytes of weights, {LIMIT} at most"
    partial = folder / "model.safetensors.partial"
    facts = {name: str(round(value)) for name, value in history.items()}
    save_file(tensors, partial, metadata={"format": "pt"} | facts)
    partial.chmod(0o644)
    partial.rename(folder / "model.safetensors")
    shape = drafter.shape
    config = {
        "attention_bias": False,
        "dtype": "bfloat16",
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "layer_types": ["full_attention"] * shape.layers,
        "max_position_embeddings": target_config.max_position_embeddings,
        "model_type": "qwen3",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.key_value_heads,
        "num_target_layers": target_config.num_hidden_layers,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "sliding_window": None,
        "vocab_size": shape.vocabulary,
    } | drafter.configuration()
    checkpoint.write_json(folder / "config.json", dict(sorted(config.items())))
    return folder


def load_weights(parent: Path, drafter) -> dict[str, float]:
    """Reads the weights into an fp32 drafter; returns the history of their training."""
    with safe_open(folder_of(parent, drafter) / "model.safetensors", "pt") as file:
        drafter.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})
        facts = file.metadata()
    return {name: float(facts[name]) for name in ("batches", "blocks", "seconds")}
