"""Scores drafters on held-out problems: accepted length by task, greedy; writes model cards.

    python score_drafters.py --model ../../models/tiny --drafters ../../models [--card]

A problem counts if the target's greedy answer is the expected one, so one pass of the target over
prompt and answer gives the features of every round. A round's length is its accepted drafts plus
one; drafts past the end of the answer are not accepted.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch

import chats
import delta_rule
import draft_card
import draft_checkpoint
import score
import teacher
from drafters import DRAFTERS

BINS = 10


@dataclass
class Tally:
    """Rounds of one task; accepted[k] of them accepted draft k + 1."""

    problems: int = 0
    skipped: int = 0  # the target's own answer is not the expected one
    rounds: int = 0
    tokens: int = 0
    accepted: list[int] = field(default_factory=lambda: [0] * 7)
    judged: list[tuple[float, bool]] = field(default_factory=list)

    def length(self) -> float:
        return 1 + sum(self.accepted) / max(self.rounds, 1)


def encoded(renderer: chats.Renderer, row: dict) -> tuple[list[int], list[int]]:
    prompt = renderer.encode(renderer.prompt(row["messages"], row.get("tools")))
    return prompt, [*renderer.encode(row["expected"]), renderer.end]


@torch.inference_mode()
def add_problem(tally: Tally, drafter, target, prompt: list[int], answer: list[int]) -> None:
    device = target.embedding.device
    ids = torch.tensor([prompt + answer], device=device)
    padded = torch.nn.functional.pad(ids, (0, -ids.shape[1] % delta_rule.CHUNK))
    features, best = target(padded)
    first, last = len(prompt), len(prompt) + len(answer) - 1
    tally.problems += 1
    if (best[0, first - 1 : last] != ids[0, first:]).any():
        tally.skipped += 1
        return
    starts = torch.arange(first, last, device=device)[None]
    with torch.autocast(device.type, torch.bfloat16):
        drafts, confidence = drafter.draft(features, starts, ids[:, first:last], target.embedding)
    drafts = drafts[0].tolist()
    confidence = None if confidence is None else confidence[0].tolist()
    position = 0  # of the anchor in the answer
    while position < len(answer) - 1:
        expected = answer[position + 1 :]
        accepted = 0
        for slot, draft in enumerate(drafts[position][: len(expected)]):
            right = draft == expected[slot]
            if confidence:
                tally.judged.append((confidence[position][slot], right))
            if not right:
                break
            tally.accepted[slot] += 1
            accepted += 1
        tally.rounds += 1
        tally.tokens += min(accepted + 1, len(expected))
        position += accepted + 1


def calibration_error(judged: list[tuple[float, bool]]) -> float:
    """Mean distance of confidence from acceptance over ten bins of confidence, by their size."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for confidence, right in judged:
        bins[min(int(confidence * BINS), BINS - 1)].append((confidence, right))
    distances = (abs(sum(c - r for c, r in members)) for members in bins.values())
    return sum(distances) / len(judged)


def figures(drafter, target, renderer: chats.Renderer, rows: list[dict]) -> dict:
    """What the model card says: by task and over all rounds."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    drafter.eval()
    for row in rows:
        add_problem(tallies[row["task"]], drafter, target, *encoded(renderer, row))
    every = list(tallies.values())
    rounds = sum(tally.rounds for tally in every)
    made = {
        "tasks": {
            task: {
                "problems": tally.problems - tally.skipped,
                "skipped": tally.skipped,
                "rounds": tally.rounds,
                "tokens_per_round": round(tally.tokens / max(tally.rounds, 1), 2),
                "accepted_length": round(tally.length(), 2),
            }
            for task, tally in tallies.items()
        },
        "rounds": rounds,
        "accepted_length": round(1 + sum(sum(t.accepted) for t in every) / rounds, 2),
        "accepted_by_position": [
            round(sum(tally.accepted[slot] for tally in every) / rounds, 3)
            for slot in range(drafter.drafts)
        ],
    }
    if judged := [one for tally in every for one in tally.judged]:
        made["confidence"] = round(sum(c for c, _ in judged) / len(judged), 3)
        made["acceptance"] = round(sum(r for _, r in judged) / len(judged), 3)
        made["calibration_error"] = round(calibration_error(judged), 3)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="the target's directory")
    parser.add_argument("--drafters", type=Path, required=True, help="has a directory a drafter")
    parser.add_argument("--names", default="dflash2,dspark")
    parser.add_argument("--eval", type=Path, help="default: eval.jsonl in the model directory")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int, default=100, help="problems a task")
    parser.add_argument("--card", action="store_true", help="write README.md beside the weights")
    options = parser.parse_args()

    delta_rule.install("torch")
    shape = teacher.shape_of(options.model)
    target = teacher.Teacher(options.model, shape, options.device)
    renderer = chats.Renderer(options.model)
    rows = score.read_eval(options.eval or options.model / "eval.jsonl", options.limit)
    for name in options.names.split(","):
        drafter, history = draft_checkpoint.load(options.drafters, DRAFTERS[name], shape)
        drafter.to(options.device)
        measured = figures(drafter, target, renderer, rows)
        print(json.dumps({"drafter": name} | measured))
        if options.card:
            folder = draft_checkpoint.folder_of(options.drafters, drafter)
            draft_card.write(folder, drafter, history, measured, options.device)


if __name__ == "__main__":
    main()
