"""Reads one JSON object a line from standard input; writes cpu.json and cpu.md into a directory.

Usage: bench_table.py DIRECTORY
"""
import datetime
import json
import pathlib
import platform
import sys


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    rows = [json.loads(line) for line in sys.stdin if line.strip()]
    date = datetime.date.today().isoformat()
    for row in rows:
        row["date"] = date
        row["processor"] = processor()
    (out / "cpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "# Decode on a CPU",
        "",
        f"Written by `tools/bench_cpu.sh` (`make bench`) on {date}: {processor()}, "
        f"{rows[0]['threads']} threads, commit {rows[0]['commit']}. Times are microseconds a layer and "
        "step; every ring phase weighted equally; output checked against float64 first.",
        "",
        "| gate | state | batch | replay | packed | packed / replay | of floor | packed of update ceiling | error |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        lines.append(
            f"| {r['gate']} | {r['state_dtype']} | {r['batch']} | {r['time_us']:.0f} | "
            f"{r['packed_time_us']:.0f} | {r['ratio_to_packed']:.2f} | {r['fraction_of_floor']:.2f} | "
            f"{r['packed_fraction_of_update']:.2f} | {r['max_error']:.1e} |"
        )
    (out / "cpu.md").write_text("\n".join(lines) + "\n")


main()
