"""Writes a drafter's model card from what was measured."""

from pathlib import Path

import draft_checkpoint

CARD = """\
# tiny-{name}: a {title} drafter for models/tiny

Drafts up to {drafts} tokens a round for [models/tiny](../tiny/README.md) and for no other target.
Trained by `tools/tiny/train_drafters.py`; this card is written by `tools/tiny/score_drafters.py`.
The folder holds no embedding and no output head: both are the target's.

| | |
| --- | --- |
| layers | {layers} |
| attention | {heads} query, {key_value_heads} key/value heads, head size {head_dim} |
| hidden, feed-forward | {hidden}, {intermediate} |
| target features | the residual stream after layers {target_layers} |
| block | {slots} rows |
| heads | {heads_of_its_own} |
| parameters | {parameters:.2f} M, {mebibytes:.1f} MiB in bfloat16 |

## Accepted length

The mean over rounds of accepted drafts plus one, greedy, on held-out problems of `eval.jsonl`
({problems} that the target answers as expected, {skipped} left out because it does not). An answer
of one token and its end allows 2.00 at most. {device}, bfloat16.

| task | problems | rounds | accepted length |
| --- | --- | --- | --- |
{tasks}| all | {problems} | {rounds} | {accepted_length:.2f} |

Rounds that accepted draft 1, 2, ..: {by_position}.
{confidence}
## Training

{batches} batches, {blocks} blocks, {seconds} s by the clock. Each block learns the target's own
greedy tokens from the target's features on generated chats and some prose, as far as the text
before a draft is what the target would say. Problems of the evaluation set are never trained on.

## Licence

Apache-2.0, as the repository; the notices of the texts behind it are in
[models/tiny/NOTICE](../tiny/NOTICE).
"""

SIZES = ("layers", "heads", "key_value_heads", "head_dim", "hidden", "intermediate")
CONFIDENCE = """
The confidence head's mean is {confidence:.3f} where {acceptance:.3f} of the drafts were accepted;
its expected calibration error over ten bins is {calibration_error:.3f}, no temperatures fitted.
"""


def write(folder: Path, drafter, history: dict, measured: dict, device: str) -> None:
    shape = drafter.shape
    weights = (folder / "model.safetensors").stat().st_size
    assert weights <= draft_checkpoint.LIMIT
    tasks = measured["tasks"]
    lines = "".join(
        f"| {task} | {row['problems']} | {row['rounds']} | {row['accepted_length']:.2f} |\n"
        for task, row in tasks.items()
    )
    confidence = CONFIDENCE.format(**measured) if "confidence" in measured else ""
    card = CARD.format(
        name=drafter.name,
        title=drafter.title,
        drafts=drafter.drafts,
        slots=drafter.slots,
        heads_of_its_own=drafter.heads_of_its_own,
        target_layers=", ".join(map(str, shape.target_layer_ids)),
        parameters=sum(weight.numel() for weight in drafter.parameters()) / 1e6,
        mebibytes=weights / (1 << 20),
        problems=sum(row["problems"] for row in tasks.values()),
        skipped=sum(row["skipped"] for row in tasks.values()),
        device={"cpu": "CPU", "cuda": "CUDA"}.get(device, device),
        tasks=lines,
        rounds=measured["rounds"],
        accepted_length=measured["accepted_length"],
        by_position=", ".join(f"{share:.3f}" for share in measured["accepted_by_position"]),
        confidence=confidence,
        batches=f"{history['batches']:.0f}",
        blocks=f"{history['blocks']:.0f}",
        seconds=f"{history['seconds']:.0f}",
        **{field: getattr(shape, field) for field in SIZES},
    )
    (folder / "README.md").write_text(card, "utf-8")
