"""Keeps cpu.json, one entry for each benchmark command, and writes cpu.md from it.

Usage: bench_table.py DIRECTORY add COMMAND           takes JSON objects, one a line, from standard input, each of one run
                                                      of the command, and keeps the run with the median ratio
       bench_table.py DIRECTORY close                 exit code 0 if such a run is near what is required of it
       bench_table.py DIRECTORY write                 writes cpu.md again from cpu.json
       bench_table.py DIRECTORY has COMMIT COMMAND    exit code 0 if it is there, from this commit and processor
"""
import datetime
import json
import pathlib
import platform
import sys

LEAST_RATIO = 0.97
SATURATED = 0.90
LEAST_RATIO_SATURATED = 1.2
CLOSE = 0.02


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def at_ceilings(row: dict) -> float:
    """Packed / replay if each moved its bytes at its ceiling: the packed step updates in place, replay reads."""
    packed_us = row["packed_fraction_of_update"] * row["packed_time_us"]
    replay_us = row["bytes"] / row["ceiling_read_gb_per_s"] * 1e-3
    return packed_us / replay_us


def replay_of_read(row: dict) -> float:
    """The share of the read ceiling that replay reaches, if all its bytes counted as read."""
    return row["bytes"] / row["time_us"] * 1e-3 / row["ceiling_read_gb_per_s"]


def least_ratio(row: dict) -> float:
    saturated = row["packed_fraction_of_update"] >= SATURATED
    return LEAST_RATIO_SATURATED if saturated else LEAST_RATIO


def verdict(row: dict) -> str:
    short = least_ratio(row) - row["ratio_to_packed"]
    return "met" if short <= 0 else f"{short:.3f} short of {least_ratio(row)}"


def table(rows: list[dict]) -> list[str]:
    lines = [
        "# Decode on a CPU",
        "",
        "Written by `tools/bench_cpu.sh` (`make bench`) from `cpu.json`, which has the command, the commit, the date and the",
        "processor of every row. Times are microseconds a layer and step, medians over the steps of one to five ring cycles, in",
        "each of which every ring phase counts alike; replay and the packed step take turns; buffers are rotated over at least",
        "twice the last-level cache; the output is checked against float64 first. Heads: GDN 48 value and 16 key heads, KDA 32",
        f"and 32. Required of packed / replay: {LEAST_RATIO}, and {LEAST_RATIO_SATURATED} where the packed step reaches {SATURATED} of the update ceiling of the same",
        "run. At the ceilings: what packed / replay would be if the packed step moved its bytes at the update ceiling and replay",
        f"its at the read ceiling. A row whose first run is less than {CLOSE} above what is required is run five times; the run",
        "with the median ratio is in the table.",
    ]
    for threads in sorted({row["threads"] for row in rows}):
        some = [row for row in rows if row["threads"] == threads]
        lines += [
            "",
            f"## {threads} thread{'s' if threads > 1 else ''}, {some[0]['processor']}",
            "",
            "| gate | state | batch | replay | packed | packed / replay | at the ceilings | of floor | read, update, copy GB/s | replay of read, packed of update ceiling | error | required | commit |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for r in some:
            lines.append(
                f"| {r['gate']} | {r['state_dtype']} | {r['batch']} | {r['time_us']:.0f} | "
                f"{r['packed_time_us']:.0f} | {r['ratio_to_packed']:.2f} | {at_ceilings(r):.2f} | {r['fraction_of_floor']:.2f} | "
                f"{r['ceiling_read_gb_per_s']:.1f}, {r['ceiling_update_gb_per_s']:.1f}, {r['ceiling_copy_gb_per_s']:.1f} | "
                f"{replay_of_read(r):.2f}, {r['packed_fraction_of_update']:.2f} | {r['max_error']:.1e} | {verdict(r)} | {r['commit']} |"
            )
    return lines


def main() -> int:
    out = pathlib.Path(sys.argv[1])
    action = sys.argv[2]
    command = sys.argv[-1]
    file = out / "cpu.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    if action == "has":
        commit = sys.argv[3]
        return 0 if any(
            row["command"] == command and row["processor"] == processor() and row["commit"].startswith(commit)
            for row in rows
        ) else 1
    if action == "write":
        (out / "cpu.md").write_text("\n".join(table(rows)) + "\n")
        return 0
    runs = sorted((json.loads(line) for line in sys.stdin), key=lambda r: r["ratio_to_packed"])
    row = runs[len(runs) // 2]
    if action == "close":
        return 0 if row["ratio_to_packed"] < least_ratio(row) + CLOSE else 1
    row["runs"] = len(runs)
    row["date"] = datetime.date.today().isoformat()
    row["processor"] = processor()
    row["command"] = command
    rows = [old for old in rows if old["command"] != command] + [row]
    rows.sort(key=lambda r: (r["threads"], r["gate"], r["state_dtype"] != "fp32", r["batch"]))
    file.write_text(json.dumps(rows, indent=1) + "\n")
    (out / "cpu.md").write_text("\n".join(table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
