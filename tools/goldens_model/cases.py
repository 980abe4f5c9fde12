"""The small checkpoints that the parity tests load, and what each of them is there to show.

Linear head dimensions stay 128 and the attention head dimension stays 256, as in every published
model of the family; everything else is as small as still shows an error.
"""

import dataclasses

VOCAB_ROWS = 512
HEAD_DIM = 256


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    seed: int
    nested: bool  # qwen3_5 with text_config and a vision tower, else flat
    tied: bool
    stored: str  # element type of the checkpoint
    key_heads: int
    value_heads: int
    heads: int
    kv_heads: int
    family: str = "qwen3_5"  # a key of families.FAMILIES
    hidden: int = 64
    intermediate: int = 96
    layer_types: tuple = ()  # empty: full_attention_interval decides
    interval: int = 4
    layers: int = 4
    rope: dict = dataclasses.field(
        default_factory=lambda: {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.25,
        }
    )
    tokens: int = VOCAB_ROWS  # ids that the tokenizer knows; fewer than rows is padding
    shards: int = 1
    draft_head: bool = False  # adds some mtp.* tensors, which a loader leaves alone
    # A_log and dt_bias in float32 beside bfloat16 weights, though with values that bfloat16 holds:
    # transformers would round them.
    float32_gates: bool = False
    # qwen3_next: experts that the configuration has but, by mlp_only_layers, no layer uses.
    unused_experts: int = 0
    # Linear layers in float8 e4m3 with one scale for each block of 128 x 128, except those named.
    float8: bool = False
    not_float8: tuple = ("in_proj_a", "in_proj_b", "lm_head")


L, A = "linear_attention", "full_attention"

CASES = [
    Case(
        name="ratio1_float32_flat_tied",
        seed=11,
        nested=False,
        tied=True,
        stored="float32",
        key_heads=2,
        value_heads=2,
        heads=2,
        kv_heads=1,
    ),
    Case(
        name="ratio2_float16_nested_untied",
        seed=12,
        nested=True,
        tied=False,
        stored="float16",
        key_heads=1,
        value_heads=2,
        heads=4,
        kv_heads=2,
        layer_types=(A, L, L, A, L),
        layers=5,
        draft_head=True,
    ),
    Case(
        name="ratio3_bfloat16_flat_untied",
        seed=13,
        nested=False,
        tied=False,
        stored="bfloat16",
        key_heads=2,
        value_heads=6,
        heads=2,
        kv_heads=1,
        tokens=500,
        shards=2,
        float32_gates=True,
    ),
    Case(
        name="ratio1_bfloat16_yarn_nested_tied",
        seed=14,
        nested=True,
        tied=True,
        stored="bfloat16",
        key_heads=2,
        value_heads=2,
        heads=3,
        kv_heads=1,
        hidden=128,
        interval=2,
        shards=2,
        # Shorter than the prompts, so that both ends of the ramp are used within them.
        rope={
            "rope_type": "yarn",
            "rope_theta": 100_000.0,
            "partial_rotary_factor": 0.25,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    Case(
        name="next_ratio2_bfloat16_untied",
        seed=21,
        family="qwen3_next",
        nested=False,
        tied=False,
        stored="bfloat16",
        key_heads=2,
        value_heads=4,
        heads=2,
        kv_heads=1,
        layer_types=(L, A, L),
        layers=3,
        float32_gates=True,
        unused_experts=4,
    ),
    Case(
        name="next_ratio3_float32_tied",
        seed=22,
        family="qwen3_next",
        nested=False,
        tied=True,
        stored="float32",
        key_heads=1,
        value_heads=3,
        heads=2,
        kv_heads=2,
        interval=2,
        layers=2,
    ),
    # No size but the attention's is a multiple of 128: blocks at every edge are ragged.
    Case(
        name="float8_ratio2_bfloat16_untied",
        seed=31,
        nested=False,
        tied=False,
        stored="bfloat16",
        key_heads=1,
        value_heads=2,
        heads=2,
        kv_heads=1,
        hidden=160,
        intermediate=200,
        layer_types=(L, A, L),
        layers=3,
        float8=True,
    ),
    Case(
        name="kimi_bfloat16_untied",
        seed=41,
        family="kimi_linear",
        nested=False,
        tied=False,
        stored="bfloat16",
        key_heads=2,
        value_heads=2,
        heads=2,
        kv_heads=2,
        layer_types=(L, L, L),
        layers=3,
        float32_gates=True,
    ),
    Case(
        name="kda_hybrid_bfloat16_tied",
        seed=42,
        family="kda_hybrid",
        nested=False,
        tied=True,
        stored="bfloat16",
        key_heads=2,
        value_heads=2,
        heads=2,
        kv_heads=1,
        float32_gates=True,
    ),
]
