"""Decodes with models of real shapes and random weights, plain and with drafts, and keeps cpu-engine.json and cpu-engine.md,
or with --device cuda h200-engine.json and h200-engine.md.

Drafts are made by the model's own head, then replaced by ones of which a given number is right: what a step costs is real,
what drafters guess is not measured here.

Usage: bench_engine.py REPLAYSSM OUTPUT_DIRECTORY [--shape DIR] [--batches 1 4] [--accepted 1 2 3 4] [--draft-tokens 4]
       bench_engine.py REPLAYSSM OUTPUT_DIRECTORY --device cuda --batches 1 8 32 128 --max-tokens 48
"""
import argparse
import itertools
import json
import pathlib
import subprocess
from collections.abc import Iterator

from bench_table import processor

SHAPES = pathlib.Path(__file__).resolve().parent.parent / "bench" / "shapes"


def measure(args: argparse.Namespace, batch: int, accepted: float) -> dict:
    command = [
        "bench", "engine", "--load-format", "dummy", "--batch", str(batch), "--context", str(args.context),
        "--max-tokens", str(args.max_tokens), "--speculative-algorithm", "MTP", "--speculative-num-draft-tokens",
        str(args.draft_tokens), "--simulated-accepted-length", str(accepted), "--json",
    ]
    found = subprocess.run([args.replayssm, *command, "--model-path", args.shape], check=True, capture_output=True, text=True)
    row = json.loads(found.stdout)
    row["command"] = " ".join(command)
    row["processor"] = processor()
    print(json.dumps(row), flush=True)
    return row


def table(rows: list[dict]) -> list[str]:
    lines = [
        "# Decode with a whole model on a CPU",
        "",
        "Written by `tools/bench_engine.py` from `cpu-engine.json`, which has the command, the commit, the date and the processor",
        "of every row. Random weights of the shapes in `bench/shapes`. Tokens per second of all sequences together; the bound is",
        "what a step has to read and write at the read ceiling of the same run. With drafts: made by the model's own head, then",
        "replaced by ones of which as many are right as a window is to commit in the mean; what the head costs is in the time.",
        "",
        "| model | threads | batch | context | prefill | plain | of the bound | replay / replay off | window | committed a window | with drafts | with drafts / plain | read GB/s | commit |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        lines.append(
            f"| {r['model']} | {r['threads']} | {r['batch']} | {r['context']} | {r['prefill_tokens_per_s']:.1f} | "
            f"{r['decode_tokens_per_s']:.2f} | {r['fraction_of_bound']:.2f} | {r['ratio_to_packed']:.2f} | {r['window']} | "
            f"{r['accepted_length']:.2f} | {r['speculative_decode_tokens_per_s']:.2f} | {r['ratio_to_plain']:.2f} | "
            f"{r['ceiling_read_gb_per_s']:.1f} | {r['commit']} |"
        )
    lines += ["", f"Processor: {', '.join(sorted({r['processor'] for r in rows}))}."]
    return lines


def measure_gpu(replayssm: str, shape: str, *options: str) -> dict:
    command = ["bench", "engine", "--device", "cuda", "--load-format", "dummy", *options, "--json"]
    found = subprocess.run([replayssm, *command, "--model-path", str(SHAPES / shape)], capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{' '.join(command)}: {found.stderr.strip()}")
    row = json.loads(found.stdout)
    row["command"] = " ".join(command)
    print(json.dumps(row), flush=True)
    return row


def gpu_rows(args: argparse.Namespace) -> Iterator[dict]:
    def decode(shape: str, batch: int, context: int, *options: str) -> dict:
        state = ["--mamba-ssm-dtype", args.state_dtype]
        return measure_gpu(args.replayssm, shape, "--skip-prefill", "--batch", str(batch), "--context", str(context),
                           "--max-tokens", str(args.max_tokens), *state, *options)

    def drafted(shape: str, batch: int, algorithm: str, window: int, accepted: float) -> dict:
        # What is accepted is simulated with the text of plain decoding, which must come out again.
        return decode(shape, batch, 256, "--deterministic", "--speculative-algorithm", algorithm, "--speculative-num-draft-tokens",
                      str(window), "--simulated-accepted-length", str(accepted))

    if "decode" in args.parts:
        yield from (decode(s, b, c) for s in args.shapes for c in args.contexts for b in args.batches)
    if "drafts" in args.parts:
        yield from (drafted("gdn-4b", b, "EAGLE", 4, 3) for b in (1, 32))
        yield from (drafted("gdn-4b", b, "NGRAM", 8, 4) for b in (1, 32))
        yield drafted("gdn-27b", 32, "NGRAM", 8, 4)
    if "prefill" in args.parts:
        yield from (measure_gpu(args.replayssm, s, "--batch", "4", "--context", "2048", "--max-tokens", "8",
                                "--mamba-ssm-dtype", args.state_dtype) for s in args.shapes)


def what_was_measured(row: dict) -> tuple:
    command = row["command"].split()
    if "--max-tokens" in command:
        at = command.index("--max-tokens")
        del command[at:at + 2]
    return row["model"], *command


DECODE_HEAD = [
    "# Whole models on a GPU",
    "",
    "Written by `tools/bench_engine.py` from `h200-engine.json`, which has the command, the commit, the date and the GPU of",
    "every row. Random weights of the shapes in `bench/shapes`, made on the GPU.",
    "",
    "## Decode",
    "",
    "Sequences begin behind a context of random numbers. The bound is what a step has to read and write (weights, states, keys",
    "and values) at the read ceiling of the same run. Tokens per second are those of all sequences over all steps but the first",
    "ones, in which libraries are loaded and graphs are captured; a median step is one without a fold. Planned and allocated:",
    "device memory, weights included. A commit with `-modified` had changes beside it that the next commit has.",
    "",
    "| model | state | batch | context | replay tokens/s | of the bound | median step us | replay off, median step us | "
    "replay / replay off, tokens/s | planned GiB | allocated GiB | commit |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]
PREFILL_HEAD = [
    "",
    "## Prompts",
    "",
    "One prompt after the other, in chunks; tokens per second of all but the first prompt, with which libraries are loaded.",
    "",
    "| model | state | prompts | tokens each | tokens/s | commit |",
    "| --- | --- | --- | --- | --- | --- |",
]
DRAFTS_HEAD = [
    "",
    "## Drafts",
    "",
    "`--deterministic`. Drafts are made, then replaced by ones of which as many are right as a window is to commit in the mean:",
    "what a step costs is real, what drafters guess is not measured here. Rings: what windows need of all sequences, those of the",
    "convolutions included; snapshots: a state for every token of every window instead. Allocated: device memory with windows, and",
    "what of it is more than without them.",
    "",
    "| model | state | batch | context | drafter | window | committed a window | tokens/s | without drafts | ratio | planned GiB | "
    "allocated GiB | more | rings GiB | snapshots GiB | commit |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]


def gib(count: float) -> str:
    return f"{count / 2**30:.2f}"


def gpu_table(rows: list[dict]) -> list[str]:
    rows = sorted(rows, key=lambda r: (r["model"], r["state_dtype"], r["context"], r["batch"], r["speculative_algorithm"] or ""))
    lines = list(DECODE_HEAD)
    for r in rows:
        if r["prefill_tokens_per_s"] is not None or r["speculative_algorithm"] is not None:
            continue
        lines.append(
            f"| {r['model']} | {r['state_dtype']} | {r['batch']} | {r['context']} | {r['decode_tokens_per_s']:.0f} | "
            f"{r['fraction_of_bound']:.3f} | {r['step_us']:.0f} | {r['packed_step_us']:.0f} | {r['ratio_to_packed']:.3f} | "
            f"{gib(r['planned_bytes'])} | {gib(r['allocated_bytes'])} | {r['commit']} |"
        )
    lines += PREFILL_HEAD
    for r in rows:
        if r["prefill_tokens_per_s"] is not None:
            lines.append(f"| {r['model']} | {r['state_dtype']} | {r['batch'] - 1} | {r['context']} | "
                         f"{r['prefill_tokens_per_s']:.0f} | {r['commit']} |")
    lines += DRAFTS_HEAD
    for r in rows:
        if r["speculative_algorithm"] is None:
            continue
        allocated = r["speculative_allocated_bytes"]
        lines.append(
            f"| {r['model']} | {r['state_dtype']} | {r['batch']} | {r['context']} | {r['speculative_algorithm']} | {r['window']} | "
            f"{r['accepted_length']:.2f} | {r['speculative_decode_tokens_per_s']:.0f} | {r['decode_tokens_per_s']:.0f} | "
            f"{r['ratio_to_plain']:.2f} | {gib(r['speculative_planned_bytes'])} | {gib(allocated)} | "
            f"{gib(allocated - r['allocated_bytes'])} | {gib(r['ring_bytes'])} | {gib(r['snapshot_bytes'])} | {r['commit']} |"
        )
    lines += ["", f"GPU: {', '.join(sorted({r['gpu'] for r in rows}))}."]
    return lines


def gpu(args: argparse.Namespace) -> None:
    """Rows take the place of earlier ones of the same command, and are written as they come."""
    kept = json.loads(args.rows.read_text()) if args.rows else []
    found = {}
    for row in itertools.chain(kept, gpu_rows(args)):
        found[what_was_measured(row)] = row
        rows = list(found.values())
        (args.out / "h200-engine.json").write_text(json.dumps(rows, indent=1) + "\n")
        (args.out / "h200-engine.md").write_text("\n".join(gpu_table(rows)) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replayssm")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", default=str(SHAPES / "gdn-2b"))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--accepted", type=float, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=36)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shapes", nargs="*", default=["gdn-4b", "gdn-27b"], help="cuda: folders of bench/shapes")
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024, 4096], help="cuda")
    parser.add_argument("--state-dtype", default="float32", help="cuda")
    parser.add_argument("--parts", nargs="*", default=["decode", "prefill", "drafts"], help="cuda: which rows to measure")
    parser.add_argument("--rows", type=pathlib.Path, help="cuda: rows of an earlier run that are kept")
    args = parser.parse_args()
    if args.device == "cuda":
        gpu(args)
        return
    rows = [measure(args, batch, accepted) for batch in args.batches for accepted in args.accepted]
    (args.out / "cpu-engine.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "cpu-engine.md").write_text("\n".join(table(rows)) + "\n")


main()
