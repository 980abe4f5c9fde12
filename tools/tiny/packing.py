"""Rows of training tokens: chats packed whole, what room is left filled with prose.

    python packing.py --corpus DIR --model models/tiny --out prose.npz     tokenises the prose once
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

import chats
import smalltalk

# Loss classes of a token; train.py gives each a weight.
CONTEXT, PROSE, ANSWER = 0, 1, 2

PROSE_ROWS = 0.2  # rows of prose alone
PROSE_MIX = {"austen": 0.35, "wordnet": 0.2, "jargon": 0.17, "kjv": 0.13, "story": 0.1, "devil": 0.05}
STORIES = 20000


def tokenize_prose(corpus: Path, model: Path) -> dict[str, np.ndarray]:
    """One array of ids a source, its documents in random order, each ended by <|endoftext|>."""
    renderer = chats.Renderer(model)
    end = renderer.tokenizer.token_to_id("<|endoftext|>")
    rng = random.Random(2)
    streams = {}
    for name in PROSE_MIX:
        if name == "story":
            animals = rng.choices(smalltalk.ANIMALS, k=STORIES)
            documents = [smalltalk.story(rng, animal) for animal in animals]
        else:
            lines = (corpus / f"{name}.jsonl").read_text("utf-8").splitlines()
            documents = [json.loads(line) for line in lines]
        rng.shuffle(documents)
        ids: list[int] = []
        for document in documents:
            ids += renderer.encode(document) + [end]
        streams[name] = np.array(ids, dtype=np.uint16)
    return streams


class Rows(IterableDataset):
    """Endless batches (ids [rows, length], loss classes [rows, length])."""

    def __init__(
        self,
        model: Path,
        prose: Path,
        filler: Path,
        rows: int,
        length: int,
        seed: int,
        prose_rows: float = PROSE_ROWS,
    ):
        self.model, self.prose, self.filler = model, prose, filler
        self.rows, self.length, self.seed = rows, length, seed
        self.prose_rows = prose_rows

    def __iter__(self):
        worker = get_worker_info()
        self.rng = random.Random(f"{self.seed}/{worker.id if worker else 0}")
        self.renderer = chats.Renderer(self.model)
        self.end = np.array([self.renderer.tokenizer.token_to_id("<|endoftext|>")], np.uint16)
        self.streams = dict(np.load(self.prose))
        if not chats.tasks.FILLER:
            chats.tasks.load_filler(self.filler)
        self.waiting = None  # a chat that did not fit the row before
        while True:
            made = [self.row() for _ in range(self.rows)]
            ids, classes = (np.stack(column) for column in zip(*made, strict=True))
            yield torch.from_numpy(ids.astype(np.int32)), torch.from_numpy(classes)

    def row(self) -> tuple[np.ndarray, np.ndarray]:
        ids, classes, used = [], [], 0
        while self.rng.random() >= self.prose_rows or used:
            chat_ids, written = self.waiting or self.renderer(chats.chat(self.rng))
            self.waiting = None
            if used + len(chat_ids) + 1 > self.length:
                # Over-long chats are dropped, others open the next row.
                self.waiting = (chat_ids, written) if len(chat_ids) < self.length else None
                break
            ids += [chat_ids, self.end]
            classes += [np.where(written, ANSWER, CONTEXT), [CONTEXT]]
            used += len(chat_ids) + 1
        name = self.rng.choices(list(PROSE_MIX), list(PROSE_MIX.values()))[0]
        stream = self.streams[name]
        room = self.length - used
        start = self.rng.randrange(len(stream) - self.length)
        if self.rng.random() < 0.5:  # begin with a document
            ends = np.flatnonzero(stream[start : start + self.length] == self.end[0])
            start += int(ends[0]) + 1 if len(ends) else 0
        prose = stream[start : start + room]
        if len(prose) < room:
            prose = np.concatenate((prose, stream[: room - len(prose)]))
        ids.append(prose)
        classes.append(np.full(room, PROSE))
        return np.concatenate(ids).astype(np.uint16), np.concatenate(classes).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokenises the prose corpus.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    streams = tokenize_prose(options.corpus, options.model)
    np.savez_compressed(options.out, **streams)
    print({name: len(ids) for name, ids in streams.items()})


if __name__ == "__main__":
    main()
