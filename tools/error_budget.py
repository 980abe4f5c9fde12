"""Measures the error of state and record formats along a sequence and draws it.

Usage: error_budget.py ERROR_CURVES DOCS

ERROR_CURVES is the program of that name (target `error_curves`); DOCS receives
measurements/error_budget.json, measurements/error_budget.md and error_budget.svg.
Needs matplotlib (tools/error_budget_requirements.txt).
"""

import json
import pathlib
import platform
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "replayssm"  # the same numbers give the same file
matplotlib.rcParams["svg.fonttype"] = "none"

COLOURS = {
    ("packed", "float32", None): ("packed step, fp32 state", "#888888", "-"),
    ("replay", "float32", "float32"): ("replay, fp32 state and d", "#1f6feb", "-"),
    ("replay", "float32", "bfloat16"): ("replay, fp32 state, bf16 d", "#1f6feb", ":"),
    ("packed", "bfloat16", None): ("packed step, bf16 state", "#d1242f", "-"),
    ("replay", "bfloat16", "float32"): ("replay, bf16 state, fp32 d", "#1a7f37", ":"),
    ("replay", "bfloat16", "bfloat16"): ("replay, bf16 state and d", "#1a7f37", "-"),
}


def key(curve):
    return curve["route"], curve["state"], curve["record"]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def draw(curves, file):
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True)
    panels = [("gdn", "mild"), ("gdn", "moderate"), ("kda", "mild"), ("kda", "moderate")]
    for axis, (gate, gates) in zip(axes.flat, panels):
        for curve in curves:
            if (curve["gate"], curve["gates"]) != (gate, gates):
                continue
            if curve["fold_block"] not in (None, 16):
                continue
            label, colour, style = COLOURS[key(curve)]
            part = curve["tokens_a_point"]
            at = [part * (i + 1) for i in range(len(curve["errors"]))]
            axis.semilogy(at, curve["errors"], style, color=colour, label=label, linewidth=1.4)
            mean = curve["mean_log_gate"]
        axis.set_title(f"{gate.upper()}, {gates} gates (mean log gate {mean:g})", fontsize=10)
        axis.grid(True, which="major", alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("tokens")
    for axis in axes[:, 0]:
        axis.set_ylabel("output error against float64")
    axes.flat[0].legend(fontsize=8, loc="center right")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def table(curves):
    lines = [
        "| gate | mean log gate | route | L | state | d | error | second 1,024 | last 1,024 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for c in curves:
        lines.append(
            f"| {c['gate']} | {c['mean_log_gate']:g} | {c['route']} | {c['fold_block'] or ''} "
            f"| {c['state']} | {c['record'] or ''} | {c['error']:.2e} | {c['second_1024']:.2e} "
            f"| {c['last_1024']:.2e} |"
        )
    return "\n".join(lines)


def main():
    program, docs = sys.argv[1], pathlib.Path(sys.argv[2])
    curves = json.loads(subprocess.run([program], check=True, capture_output=True).stdout)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (docs / "measurements").mkdir(exist_ok=True)
    (docs / "measurements" / "error_budget.json").write_text(
        "[\n" + ",\n".join(json.dumps(curve) for curve in curves) + "\n]\n"
    )
    (docs / "measurements" / "error_budget.md").write_text(
        "# Error of state and record formats over 8,192 tokens\n\n"
        "Relative L2 error of the outputs against float64, four heads, random bf16 inputs; the\n"
        "CPU operations. Written by `tools/error_budget.py build/release/tests/ops/error_curves\n"
        f"docs` on {processor()}, commit {commit}.\n\n" + table(curves) + "\n"
    )
    draw(curves, docs / "error_budget.svg")


main()
