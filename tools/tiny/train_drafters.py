"""Trains the drafters of models/tiny side by side, on one pass of the target a batch.

    python train_drafters.py --model ../../models/tiny --prose prose.npz \
        --filler corpus/austen.jsonl --out ../../models --device cuda --seconds 600

A batch is some rows of chats and prose; of each row, blocks at random anchors are drafted at once.
The learning rate falls linearly to zero at the end of the time, whatever the machine's speed.
"""

import argparse
import os
import random
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import delta_rule
import draft_checkpoint
import packing
import teacher
from drafters import DRAFTERS


class Optimizer:
    """Muon for the matrices of the layers; AdamW for norms, biases, codebooks and embeddings."""

    def __init__(self, drafter, learning_rate: float, device: str):
        matrices, others = [], []
        for name, weight in drafter.named_parameters():
            plain = weight.ndim == 2 and name.startswith(("fc.", "layers."))
            (matrices if plain else others).append(weight)
        self.parameters = matrices + others
        self.learning_rate = learning_rate
        self.parts = (
            torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(
                others, betas=(0.9, 0.95), weight_decay=0.0, fused=device == "cuda"
            ),
        )

    def step(self, share: float) -> None:
        """One step at a share of the learning rate, from gradients that it then drops."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.learning_rate * share
            part.step()
            part.zero_grad(set_to_none=True)


class Lessons:
    """Rows with what the target says about them; each pass of the target serves several batches."""

    def __init__(self, batches, target, device: str, reuse: int, kept: int = 64):
        self.batches, self.target, self.device = batches, target, device
        self.reuse, self.kept = reuse, kept
        self.end_of_text = target.model.config.pad_token_id
        self.made: list[tuple] = []
        self.asked = 0

    def blocks(self, count: int, drafts: int):
        """Blocks at `count` random anchors of each row."""
        if self.asked % self.reuse == 0:
            self.made = [*self.made[-self.kept + 1 :], self.new()]
            lesson = self.made[-1]
        else:
            lesson = random.choice(self.made)
        self.asked += 1
        ids, classes, features, best = lesson
        piece = teacher.pieces(ids, classes, self.end_of_text)
        starts = teacher.choose_starts(piece, count)
        return teacher.blocks_at(starts, ids, piece, features, best, drafts)

    def new(self) -> tuple:
        ids, classes = (x.to(self.device).long() for x in next(self.batches))
        return ids, classes, *self.target(ids)


def accepted(right, counted):
    """Mean number of drafts accepted before the first wrong one, over blocks that have any."""
    accepted = (right & counted).int().cumprod(-1).sum(-1)
    return accepted[counted.any(-1)].float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="the target's directory")
    parser.add_argument("--prose", type=Path, required=True, help="made by packing.py")
    parser.add_argument("--filler", type=Path, required=True, help="corpus file for long prompts")
    parser.add_argument("--out", type=Path, required=True, help="gets a directory a drafter")
    parser.add_argument("--drafters", default="dflash2,dspark")
    parser.add_argument("--start-from", type=Path, help="an --out of before, to go on from")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=600, help="from process start")
    parser.add_argument("--save-every", type=float, default=300, help="seconds")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--blocks", type=int, default=128, help="blocks a row")
    parser.add_argument("--reuse", type=int, default=1, help="batches a pass of the target serves")
    parser.add_argument("--prose-rows", type=float, default=0.0, help="share of rows without chats")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=50, help="steps")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=20)
    options = parser.parse_args()

    start = time.time()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows = packing.Rows(
        options.model, options.prose, options.filler, options.rows, options.length, options.seed,
        options.prose_rows,
    )
    batches = iter(DataLoader(rows, batch_size=None, num_workers=options.workers))
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    delta_rule.install("torch")
    shape = teacher.shape_of(options.model)
    target = teacher.Teacher(options.model, shape, options.device)
    lessons = Lessons(batches, target, options.device, options.reuse)

    training = []
    for name in options.drafters.split(","):
        if options.start_from:
            drafter, before = draft_checkpoint.load(options.start_from, DRAFTERS[name], shape)
        else:
            drafter, before = DRAFTERS[name](shape), {}
        drafter.to(options.device)
        optimizer = Optimizer(drafter, options.learning_rate, options.device)
        training.append((drafter, optimizer, before))
        parameters = sum(weight.numel() for weight in drafter.parameters())
        print(f"{name}: {parameters / 1e6:.2f} M parameters", flush=True)
    drafts = training[0][0].drafts

    def save() -> None:
        done = {"batches": step, "blocks": step * options.rows * options.blocks,
                "seconds": time.time() - start}
        for drafter, _, before in training:
            history = {name: before.get(name, 0) + value for name, value in done.items()}
            draft_checkpoint.save(options.out, drafter, target.model.config, history)

    saved, step = start, 0
    while (elapsed := time.time() - start) < options.seconds:
        share = min((step + 1) / options.warmup, 1) * (1 - elapsed / options.seconds)
        blocks = lessons.blocks(options.blocks, drafts)
        report = []
        for drafter, optimizer, _ in training:
            with torch.autocast(options.device, torch.bfloat16):
                loss, right = drafter.losses(blocks, target.embedding)
            loss.backward()
            optimizer.step(share)
            report.append((loss.item(), accepted(right, blocks.counted)))
        step += 1
        if step == 1 or step % options.log_every == 0:
            said = " ".join(
                f"{drafter.name} loss {loss:.3f} accepted {length:.2f}"
                for (drafter, *_), (loss, length) in zip(training, report, strict=True)
            )
            print(f"step {step} {time.time() - start:.0f} s {said}", flush=True)
        if time.time() - saved > options.save_every:
            save()
            saved = time.time()
    save()
    print(f"done: {step} steps, {time.time() - start:.0f} s", flush=True)
    os._exit(0)  # the workers never end by themselves


if __name__ == "__main__":
    main()
