"""Writes eval.jsonl: 500 held-out prompts a task with their expected answers.

    python write_eval.py --corpus DIR --model models/tiny
"""

import argparse
import json
import random
from pathlib import Path

import chats
import tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=500, help="prompts a task")
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()

    tasks.load_filler(options.corpus / "austen.jsonl")
    renderer = chats.Renderer(options.model)
    with (options.model / "eval.jsonl").open("w", encoding="utf-8") as file:
        for task in tasks.NAMES:
            rng = random.Random(f"{options.seed}/{task}")
            seen: set[str] = set()
            while len(seen) < options.prompts:
                problem = tasks.held_out(task, rng)
                if problem.key in seen:
                    continue
                seen.add(problem.key)
                messages = problem.turns
                if rng.random() < 0.2:
                    messages = [{"role": "system", "content": chats.SYSTEM[0]}, *messages]
                row = {"task": task, "messages": messages}
                if problem.tools:
                    row["tools"] = problem.tools
                row["max_tokens"] = len(renderer.encode(problem.answer)) + 8
                row["expected"] = problem.answer
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
