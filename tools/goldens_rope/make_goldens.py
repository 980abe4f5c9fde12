"""Writes tests/data/rope/frequencies.json: rotary frequencies as transformers computes them.

Run with the packages of requirements.txt:  python tools/goldens_rope/make_goldens.py
"""

import json
import pathlib

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

OUT = pathlib.Path(__file__).parents[2] / "tests/data/rope/frequencies.json"

CASES = {
    "default": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    **{
        f"yarn factor {factor:g}{suffix}": {
            "rope_type": "yarn",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "factor": factor,
            "original_max_position_embeddings": 262144,
            **extra,
        }
        for factor in (1.0, 4.0)
        for suffix, extra in (("", {}), (", not truncated", {"truncate": False}))
    },
}


def frequencies(rope):
    config = Qwen3_5TextConfig(
        hidden_size=512,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=256,
        max_position_embeddings=int(262144 * rope.get("factor", 1)),
        rope_parameters=rope,
    )
    if rope["rope_type"] == "default":
        inverse, factor = Qwen3_5TextRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inverse, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
    return inverse.to(torch.float64).tolist(), factor


def main():
    cases = []
    for name, rope in CASES.items():
        inverse, factor = frequencies(dict(rope))
        assert len(inverse) == 32
        cases.append({"name": name, "rope": rope, "frequencies": inverse, "attention_factor": factor})
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
