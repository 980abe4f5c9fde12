"""Builds, saves and reads the model directory."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from mtp import MultiTokenPrediction

SHARD_BYTES = 15 << 20
LAYERS = 8


def configuration(end_of_turn: int, end_of_text: int, rows: int, layers: int) -> Qwen3_5TextConfig:
    return Qwen3_5TextConfig(
        vocab_size=rows,
        hidden_size=320,
        intermediate_size=896,
        num_hidden_layers=layers,
        layer_types=["linear_attention" if (i + 1) % 4 else "full_attention" for i in range(layers)],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 100000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_of_turn,
        pad_token_id=end_of_text,
    )


def create(folder: Path, layers: int = LAYERS) -> tuple[Qwen3_5ForCausalLM, MultiTokenPrediction]:
    """A fresh model for the tokenizer in the folder; vocabulary rows are padded to 64."""
    tokens = {t["content"]: t["id"] for t in read_json(folder / "tokenizer.json")["added_tokens"]}
    rows = -(-(max(tokens.values()) + 1) // 64) * 64
    config = configuration(tokens["<|im_end|>"], tokens["<|endoftext|>"], rows, layers)
    model = Qwen3_5ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Outputs into the residual stream start small; decay starts slow to favour long memory.
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                weight.mul_((2 * layers) ** -0.5)
            elif name.endswith("A_log"):
                weight.copy_(torch.empty_like(weight).uniform_(1.0, 8.0).log())
            elif name.endswith("dt_bias"):
                step = torch.empty_like(weight).uniform_(-7.0, -2.3).exp()  # about 0.001 to 0.1
                weight.copy_(step + torch.log(-torch.expm1(-step)))
    return model, MultiTokenPrediction(config)


def read_json(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def save(folder: Path, model, mtp: MultiTokenPrediction) -> None:
    """Writes config.json, generation_config.json and bf16 shards with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: w for n, w in model.state_dict().items() if n != "lm_head.weight"}
    tensors |= {f"mtp.{name}": weight for name, weight in mtp.state_dict().items()}
    tensors = {n: w.detach().to("cpu", torch.bfloat16).contiguous() for n, w in tensors.items()}
    shards: list[dict] = [{}]
    size = 0
    for name, weight in tensors.items():
        if size + weight.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = weight
        size += weight.nbytes
    index = {
        "metadata": {"total_size": sum(weight.nbytes for weight in tensors.values())},
        "weight_map": {},
    }
    for old in folder.glob("model-*.safetensors"):
        old.unlink()
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)
        index["weight_map"] |= dict.fromkeys(shard, file)
    write_json(folder / "model.safetensors.index.json", index)

    config = model.config.to_diff_dict() | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "attn_output_gate": True,
        "attention_bias": False,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
    }
    for implicit in ("head_dim", "linear_conv_kernel_dim", "linear_key_head_dim",
                     "linear_value_head_dim", "rms_norm_eps", "num_hidden_layers",
                     "num_attention_heads", "num_key_value_heads", "layer_types"):
        config[implicit] = getattr(model.config, implicit)
    config.pop("_name_or_path", None)
    write_json(folder / "config.json", dict(sorted(config.items())))
    end_of_text = model.config.pad_token_id
    write_json(
        folder / "generation_config.json",
        {
            "do_sample": False,
            "eos_token_id": [model.config.eos_token_id, end_of_text],
            "pad_token_id": end_of_text,
        },
    )


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def load_weights(folder: Path, model, mtp: MultiTokenPrediction) -> None:
    """Reads the shards of a directory into fp32 modules."""
    tensors: dict = {}
    for file in sorted(folder.glob("model-*.safetensors")):
        tensors |= load_file(file)
    head = {name[4:]: tensors.pop(name) for name in list(tensors) if name.startswith("mtp.")}
    mtp.load_state_dict(head)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors)
