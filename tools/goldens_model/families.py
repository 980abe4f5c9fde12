"""What differs between the model families: the configuration, and the transformers model for it.

Every family has
    config(case)                    the contents of config.json
    model(case, directory)          the transformers model of a checkpoint, without its weights
    loaded(case, directory, dtype)  the same with its weights
    decoder(model)                  the module with `layers`
    arguments(tokens)               what a step of so many tokens needs besides the tokens
    published(tensors)              a model's tensors by the names that published checkpoints have
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import load_file
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention

from cases import HEAD_DIM, VOCAB_ROWS, Case

LINEAR_DIM = 128
CONV_WIDTH = 4
POSITIONS = 1024


def float8_config(names: list) -> dict:
    """`names` are the modules that stay as they are."""
    return {
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": names,
        }
    }


class Qwen35:
    @staticmethod
    def text_config(case: Case) -> dict:
        config = {
            "model_type": "qwen3_5_text",
            "vocab_size": VOCAB_ROWS,
            "hidden_size": case.hidden,
            "intermediate_size": case.intermediate,
            "num_hidden_layers": case.layers,
            "num_attention_heads": case.heads,
            "num_key_value_heads": case.kv_heads,
            "head_dim": HEAD_DIM,
            "linear_num_key_heads": case.key_heads,
            "linear_num_value_heads": case.value_heads,
            "linear_key_head_dim": LINEAR_DIM,
            "linear_value_head_dim": LINEAR_DIM,
            "linear_conv_kernel_dim": CONV_WIDTH,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": POSITIONS,
            "attention_bias": False,
            "attn_output_gate": True,
            "mamba_ssm_dtype": "float32",
            "rope_parameters": dict(case.rope, mrope_section=[11, 11, 10], mrope_interleaved=True),
            "tie_word_embeddings": case.tied,
            "bos_token_id": None,
            "eos_token_id": case.tokens - 2,
            "dtype": case.stored,
        }
        if case.layer_types:
            config["layer_types"] = list(case.layer_types)
        else:
            config["full_attention_interval"] = case.interval
        return config

    @classmethod
    def config(cls, case: Case) -> dict:
        text = cls.text_config(case)
        if not case.nested:
            return {"architectures": ["Qwen3_5ForCausalLM"], **text}
        return {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "tie_word_embeddings": case.tied,
            "text_config": text,
            "vision_config": {
                "model_type": "qwen3_5_vision",
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_heads": 2,
                "patch_size": 2,
                "temporal_patch_size": 1,
                "spatial_merge_size": 1,
                "num_position_embeddings": 4,
                "out_hidden_size": case.hidden,
            },
        }

    @staticmethod
    def model_class(case: Case):
        name = "Qwen3_5ForConditionalGeneration" if case.nested else "Qwen3_5ForCausalLM"
        return getattr(transformers, name)

    @classmethod
    def model(cls, case: Case, directory: pathlib.Path):
        return cls.model_class(case)(transformers.AutoConfig.from_pretrained(directory))

    @classmethod
    def loaded(cls, case: Case, directory: pathlib.Path, dtype: torch.dtype):
        return cls.model_class(case).from_pretrained(directory, dtype=dtype, attn_implementation="eager")

    @staticmethod
    def decoder(model):
        return getattr(model.model, "language_model", model.model)

    @staticmethod
    def arguments(tokens: int) -> dict:
        return {}

    @staticmethod
    def published(tensors: dict) -> dict:
        return tensors


class Qwen3Next(Qwen35):
    @classmethod
    def config(cls, case: Case) -> dict:
        config = cls.text_config(case)
        for key in ("attn_output_gate", "mamba_ssm_dtype", "rope_parameters"):
            del config[key]
        return {
            "architectures": ["Qwen3NextForCausalLM"],
            **config,
            "model_type": "qwen3_next",
            # Beside the others, as in the published files.
            "rope_theta": case.rope["rope_theta"],
            "partial_rotary_factor": case.rope["partial_rotary_factor"],
            "rope_scaling": None,
            "decoder_sparse_step": 1,
            "num_experts": case.unused_experts,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "mlp_only_layers": list(range(case.layers)) if case.unused_experts else [],
        }

    @staticmethod
    def model_class(case: Case):
        return transformers.Qwen3NextForCausalLM


def split_convolutions(tensors: dict) -> dict:
    """Kimi Linear's names: one convolution for each of q, k and v; gate tensors beside the others."""
    result = {}
    for name, tensor in tensors.items():
        if name.endswith(".conv1d.weight"):
            for letter, part in zip("qkv", tensor.chunk(3)):
                result[name.replace(".conv1d.", f".{letter}_conv1d.")] = part.contiguous()
        else:
            result[name.replace(".forget_gate.", ".")] = tensor
    return result


def join_convolutions(tensors: dict) -> dict:
    """The inverse of split_convolutions."""
    result = {}
    for name, tensor in tensors.items():
        parent, leaf = name.removesuffix(".weight").rsplit(".", 1)
        if leaf in ("k_conv1d", "v_conv1d"):
            continue
        if leaf == "q_conv1d":
            parts = [tensors[name.replace(".q_conv1d.", f".{letter}_conv1d.")] for letter in "qkv"]
            result[name.replace(".q_conv1d.", ".conv1d.")] = torch.cat(parts)
        elif leaf in ("f_a_proj", "f_b_proj", "dt_bias", "A_log"):
            result[name.replace(parent, parent + ".forget_gate")] = tensor
        else:
            result[name] = tensor
    return result


class KimiLinear(Qwen35):
    @classmethod
    def config(cls, case: Case) -> dict:
        kinds = case.layer_types
        return {
            "architectures": ["KimiLinearForCausalLM"],
            "model_type": "kimi_linear",
            "vocab_size": VOCAB_ROWS,
            "hidden_size": case.hidden,
            "intermediate_size": case.intermediate,
            "num_hidden_layers": case.layers,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": case.tied,
            "bos_token_id": 0,
            "pad_token_id": 1,
            "eos_token_id": case.tokens - 2,
            "dtype": case.stored,
            "num_attention_heads": case.heads,
            "num_key_value_heads": case.kv_heads,
            "model_max_length": POSITIONS,
            "linear_attn_config": {
                "head_dim": LINEAR_DIM,
                "num_heads": case.value_heads,
                "short_conv_kernel_size": CONV_WIDTH,
                "kda_layers": [n + 1 for n, kind in enumerate(kinds) if kind == "linear_attention"],
                "full_attn_layers": [n + 1 for n, kind in enumerate(kinds) if kind == "full_attention"],
            },
            # Every layer dense.
            "first_k_dense_replace": case.layers,
            "num_experts": 4,
            "num_experts_per_token": 2,
        }

    @staticmethod
    def model_class(case: Case):
        return transformers.KimiLinearForCausalLM

    @staticmethod
    def arguments(tokens: int) -> dict:
        # Without attention layers the cache has no length to derive positions and masks from; linear
        # layers read neither.
        masks = {"full_attention": None, "linear_attention": None}
        return {"attention_mask": masks, "position_ids": torch.zeros(1, tokens, dtype=torch.long)}

    @staticmethod
    def published(tensors: dict) -> dict:
        return split_convolutions(tensors)


class KdaHybrid(Qwen35):
    """The decoder of qwen3_5_text with the linear layers of kimi_linear. Nobody publishes one."""

    @classmethod
    def config(cls, case: Case) -> dict:
        config = Qwen35.text_config(case)
        for key in list(config):
            if key.startswith("linear_"):
                del config[key]
        return {
            **config,
            "model_type": "kda_hybrid",
            "linear_attn_config": {
                "head_dim": LINEAR_DIM,
                "num_heads": case.value_heads,
                "short_conv_kernel_size": CONV_WIDTH,
            },
        }

    @classmethod
    def model(cls, case: Case, directory: pathlib.Path):
        config = json.loads((directory / "config.json").read_text())
        text = transformers.AutoConfig.for_model(**{**Qwen35.text_config(case), "dtype": "float32"})
        text._attn_implementation = "eager"
        model = transformers.Qwen3_5ForCausalLM(text)
        kimi = transformers.AutoConfig.for_model(
            "kimi_linear",
            hidden_size=case.hidden,
            linear_attn_config=config["linear_attn_config"],
            rms_norm_eps=config["rms_norm_eps"],
            num_hidden_layers=case.layers,
        )
        for n, layer in enumerate(model.model.layers):
            if layer.block_type == "linear_attention":
                layer.linear_attn = KimiLinearDeltaAttention(kimi, n)
        return model

    @staticmethod
    def published(tensors: dict) -> dict:
        return split_convolutions(tensors)

    @classmethod
    def loaded(cls, case: Case, directory: pathlib.Path, dtype: torch.dtype):
        model = cls.model(case, directory)
        tensors = join_convolutions(load_file(directory / "model.safetensors"))
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        assert missing == (["lm_head.weight"] if case.tied else []) and not unexpected
        model.tie_weights()
        for parameter in model.parameters():  # buffers stay float32, as in from_pretrained
            parameter.data = parameter.data.to(dtype)
        return model


FAMILIES = {
    "qwen3_5": Qwen35,
    "qwen3_next": Qwen3Next,
    "kimi_linear": KimiLinear,
    "kda_hybrid": KdaHybrid,
}
