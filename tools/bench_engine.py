"""Decodes with models of real shapes and random weights, plain and with drafts, and keeps cpu-engine.json and cpu-engine.md,
or with --device cuda h200-engine.json and h200-engine.md.

Drafts are made by the model's own head, then replaced by ones of which a given number is right: what a step costs is real,
what drafters guess is not measured here.

Usage: bench_engine.py REPLAYSSM OUTPUT_DIRECTORY [--shape DIR] [--batches 1 4] [--accepted 1 2 3 4] [--draft-tokens 4]
"""
import argparse
import json
import pathlib
import subprocess

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


def measure_gpu(args: argparse.Namespace, shape: str, batch: int, context: int) -> dict:
    command = [
        "bench", "engine", "--device", "cuda", "--load-format", "dummy", "--skip-prefill", "--batch", str(batch), "--context",
        str(context), "--max-tokens", str(args.max_tokens), "--mamba-ssm-dtype", args.state_dtype, "--json",
    ]
    if args.window:
        command += ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(args.window),
                    "--simulated-accepted-length", str(args.accepted[0])]
    found = subprocess.run([args.replayssm, *command, "--model-path", str(SHAPES / shape)], capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{' '.join(command)}: {found.stderr.strip()}")
    row = json.loads(found.stdout)
    row["command"] = " ".join(command)
    print(json.dumps(row), flush=True)
    return row


def gpu_table(rows: list[dict]) -> list[str]:
    lines = [
        "# Decode with a whole model on a GPU",
        "",
        "Written by `tools/bench_engine.py` from `h200-engine.json`, which has the command, the commit, the date and the GPU of",
        "every row. Random weights of the shapes in `bench/shapes`, made on the GPU; sequences begin behind a context of random",
        "numbers. The bound is what a step has to read and write (weights, states, keys and values) at the read ceiling of the",
        "same run. A median step is one without a fold; tokens per second are those of all sequences over all steps. Rows of",
        "commits before the first steps were left out of the time also count those in which libraries are loaded and graphs are",
        "captured, some 100 ms of the first mode that is run, replay: their medians say more. Planned and allocated: device",
        "memory, weights included.",
        "",
        "| model | state | batch | context | replay tokens/s | median step us | bound / median step | replay off, median step us | "
        "replay off / replay, medians | planned GiB | allocated GiB | commit |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in sorted(rows, key=lambda r: (r["model"], r["state_dtype"], r["context"], r["batch"])):
        bound_us = r["bytes_per_step"] / r["ceiling_read_gb_per_s"] * 1e-3
        lines.append(
            f"| {r['model']} | {r['state_dtype']} | {r['batch']} | {r['context']} | {r['decode_tokens_per_s']:.0f} | "
            f"{r['step_us']:.0f} | {bound_us / r['step_us']:.2f} | {r['packed_step_us']:.0f} | "
            f"{r['packed_step_us'] / r['step_us']:.2f} | {r['planned_bytes'] / 2**30:.1f} | "
            f"{r['allocated_bytes'] / 2**30:.1f} | {r['commit']} |"
        )
    lines += ["", f"GPU: {', '.join(sorted({r['gpu'] for r in rows}))}."]
    return lines


def gpu(args: argparse.Namespace) -> None:
    rows = json.loads(args.rows.read_text()) if args.rows else []
    for shape in args.shapes:
        rows += [measure_gpu(args, shape, batch, context) for context in args.contexts for batch in args.batches]
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
    parser.add_argument("--window", type=int, default=0, help="cuda: tokens of a verified window, committing --accepted")
    parser.add_argument("--rows", type=pathlib.Path, help="cuda: rows of an earlier run that are kept")
    args = parser.parse_args()
    if args.device == "cuda":
        gpu(args)
        return
    rows = [measure(args, batch, accepted) for batch in args.batches for accepted in args.accepted]
    (args.out / "cpu-engine.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "cpu-engine.md").write_text("\n".join(table(rows)) + "\n")


main()
