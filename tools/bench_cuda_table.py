"""Turns the rows of tools/bench_cuda.sh into h200.json and h200.md.

Usage: bench_cuda_table.py ROWS OUTPUT_DIRECTORY

Fractions of the floor are given twice: over the copy ceiling measured in the same run, and over 4.18 TB/s, the ceiling that the
project's targets for the H200 were set with.
"""

import json
import pathlib
import sys

CEILING = 4.18e6  # bytes per microsecond


def packed_bytes(row):
    size = 2 if row["state_dtype"] == "bf16" else 4
    gate = 4 if row["gate"] == "gdn" else 512
    hv, h = row["value_heads"], row["key_heads"]
    return row["batch"] * (hv * 16384 * size * 2 + hv * (512 + gate + 4) + h * 512)


def decode_table(rows):
    lines = [
        "| gate | state | L | batch | launch | decode us | of floor | at 4.18 TB/s | packed us "
        "| of floor at 4.18 | packed / decode |",
        "| --- " * 11 + "|",
    ]
    for r in rows:
        if r["op"] != "decode" or "reference" in r:
            continue
        at_fixed = r["bytes"] / CEILING / r["time_us"]
        packed = packed_bytes(r) / CEILING / r["packed_time_us"]
        lines.append(
            f"| {r['gate']} | {r['state_dtype']} | {r['fold_block']} | {r['batch']} "
            f"| {r['launch']} | {r['time_us']:.2f} | {r['fraction_of_floor']:.3f} "
            f"| {at_fixed:.3f} | {r['packed_time_us']:.2f} | {packed:.3f} "
            f"| {r['ratio_to_packed']:.2f} |"
        )
    return lines


def verify_table(rows):
    lines = [
        "| gate | state | batch | T | live records | accepted a step | us | of floor | at 4.18 TB/s |",
        "| --- " * 9 + "|",
    ]
    for r in rows:
        if r["op"] != "verify":
            continue
        cycle = r["history"] == "cycle"
        lines.append(
            f"| {r['gate']} | {r['state_dtype']} | {r['batch']} | {r['window']} | {r['history']} "
            f"| {r['accepted_per_step'] if cycle else '-'} | {r['time_us']:.2f} "
            f"| {r['fraction_of_floor']:.3f} | {r['bytes'] / CEILING / r['time_us']:.3f} |"
        )
    return lines


def prefill_table(rows):
    lines = [
        "| gate | state | batch | tokens a row | us | ns a token | reference us | reference / ours |",
        "| --- " * 8 + "|",
    ]
    key = lambda r: (r["gate"], r["value_heads"], r["batch"], r["window"])
    references = {key(r): r for r in rows if r["op"] == "prefill" and "reference" in r}
    for r in rows:
        if r["op"] != "prefill" or "reference" in r:
            continue
        other = references.get(key(r))
        beside = f"{other['time_us']:.0f} | {other['time_us'] / r['time_us']:.2f}" if other else "- | -"
        lines.append(
            f"| {r['gate']} | {r['state_dtype']} | {r['batch']} | {r['window']} | {r['time_us']:.0f} "
            f"| {1000 * r['time_us'] / (r['batch'] * r['window']):.0f} | {beside} |"
        )
    return lines


def conv_table(rows):
    lines = ["| batch | tokens a row | us | of floor | at 4.18 TB/s |", "| --- " * 5 + "|"]
    for r in rows:
        if r["op"] != "conv":
            continue
        lines.append(
            f"| {r['batch']} | {r['window']} | {r['time_us']:.2f} | {r['fraction_of_floor']:.3f} "
            f"| {r['bytes'] / CEILING / r['time_us']:.3f} |"
        )
    return lines


def fold_table(rows):
    lines = [
        "| state | heads | batch | layers | ring rows | records | us | of floor | at 4.18 TB/s |",
        "| --- " * 9 + "|",
    ]
    for r in rows:
        if r["op"] != "fold":
            continue
        lines.append(
            f"| {r['state_dtype']} | {r['value_heads']}/{r['key_heads']} | {r['batch']} "
            f"| {r['layers']} | {r['ring_rows']} | {r['records']} | {r['time_us']:.1f} "
            f"| {r['fraction_of_floor']:.3f} | {r['bytes'] / CEILING / r['time_us']:.3f} |"
        )
    return lines


def reference_table(rows):
    references = [r for r in rows if "reference" in r and r["op"] != "prefill"]
    if not references:
        return []
    lines = [
        "",
        "## Reference kernels",
        "",
        "In which run they were timed, and what shared the GPU with which rows, is in [h200/README.md](h200/README.md). Timed the same way (`tools/reference_fla/run.py`): a step that reads and writes the state, as our packed step does.",
        "Outputs are bf16 on both sides.",
        "",
        "| reference | gate | state | batch | its packed step us | ours | our decode us | its packed / our packed "
        "| its packed / our decode |",
        "| --- " * 9 + "|",
    ]
    ours = {
        (r["gate"], r["state_dtype"], r["value_heads"], r["batch"]): r
        for r in rows
        if r["op"] == "decode" and "reference" not in r and r["fold_block"] == 16 and r["launch"] == "settled"
    }
    for r in references:
        own = ours[(r["gate"], r["state_dtype"], r["value_heads"], r["batch"])]
        time, packed, decode = r["time_us"], own["packed_time_us"], own["time_us"]
        lines.append(
            f"| {r['reference']} | {r['gate']} | {r['state_dtype']} | {r['batch']} | {time:.2f} | {packed:.2f} "
            f"| {decode:.2f} | {time / packed:.2f} | {time / decode:.2f} |"
        )
    return lines


def commits(rows):
    """Which commits the rows of each operation come from."""
    found = {}
    for r in rows:
        if "reference" not in r:
            found.setdefault(f"{r['commit']} ({r['date'][:10]})", []).append(r["op"])
    return "; ".join(f"commit {commit}: {', '.join(dict.fromkeys(ops))}" for commit, ops in found.items()).capitalize()


def main():
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    out = pathlib.Path(sys.argv[2])
    (out / "h200.json").write_text(
        "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    )
    first = rows[0]
    ceilings = [r["ceiling_copy_gb_per_s"] for r in rows if "reference" not in r]
    text = [
        f"# Decode, verification, prefill, convolution and fold on one {first['gpu']}",
        "",
        f"{commits(rows)}. Written by `tools/bench_cuda.sh`: CUDA graphs,",
        "memories rotated beyond the L2 cache, random data, every ring phase weighted equally with rows",
        "staggered, medians of nine replays, and of five turns of decode and packed step. Every row",
        "compared its own output with float64 first. `settled`: a launch fetches states and records while",
        "the launch before it still runs (docs/kernels.md).",
        "",
        "Copy ceiling of the runs: "
        f"{min(ceilings) / 1000:.2f} to {max(ceilings) / 1000:.2f} TB/s.",
        "",
        "## Decode, one layer",
        "",
        *decode_table(rows),
        "",
        "## Verification, one layer",
        "",
        "Windows of T tokens a row; `cycle`: steps that fold on read, walking through the ring phases.",
        "",
        *verify_table(rows),
        "",
        "## Prefill, one layer",
        "",
        "Chunks of new prompts' tokens, beside the chunk kernels of the reference, which keep fp32 states, where they were timed; what shared the GPU with these rows is in [h200/README.md](h200/README.md).",
        "",
        *prefill_table(rows),
        "",
        "## Convolution, one layer, GDN 48 / 16",
        "",
        *conv_table(rows),
        "",
        "## Fold, all layers in one launch",
        "",
        *fold_table(rows),
        *reference_table(rows),
    ]
    (out / "h200.md").write_text("\n".join(text) + "\n")


main()
