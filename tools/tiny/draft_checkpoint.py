"""Writes and reads a drafter's directory, models/tiny-NAME: config.json and model.safetensors."""

import dataclasses
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import checkpoint
from draft_block import Shape

LIMIT = 12 << 20  # bytes of a drafter that is shipped
SIZES = {  # fields of Shape by their names in config.json
    "head_dim": "head_dim",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "key_value_heads": "num_key_value_heads",
    "layers": "num_hidden_layers",
    "eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
}


def folder_of(parent: Path, drafter) -> Path:
    """Where a drafter, or a kind of drafter, lies."""
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
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "layer_types": ["full_attention"] * shape.layers,
        "max_position_embeddings": target_config.max_position_embeddings,
        "model_type": "qwen3",
        "num_target_layers": target_config.num_hidden_layers,
        "sliding_window": None,
        "vocab_size": shape.vocabulary,
    }
    config |= {key: getattr(shape, field) for field, key in SIZES.items()}
    config |= drafter.configuration()
    checkpoint.write_json(folder / "config.json", dict(sorted(config.items())))
    return folder


def load(parent: Path, kind: type, target: Shape):
    """The fp32 drafter of a kind that `parent` holds, and the history of its training."""
    folder = folder_of(parent, kind)
    config = checkpoint.read_json(folder / "config.json")
    layers = config.get("dflash_config", config)["target_layer_ids"]
    sizes = {field: config[key] for field, key in SIZES.items()}
    drafter = kind(dataclasses.replace(target, target_layer_ids=tuple(layers), **sizes))
    with safe_open(folder / "model.safetensors", "pt") as file:
        drafter.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})
        facts = file.metadata()
    return drafter, {name: float(facts[name]) for name in ("batches", "blocks", "seconds")}
