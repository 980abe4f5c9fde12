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
    nested: bool  # qwen3_5 with text_config and a vision tower, else qwen3_5_text
    tied: bool
    stored: str  # element type of the checkpoint
    key_heads: int
    value_heads: int
    heads: int
    kv_heads: int
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
]
