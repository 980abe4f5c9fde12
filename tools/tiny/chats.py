"""Training conversations: one or more exchanges, rendered by the model's own chat template."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import numpy as np
from tokenizers import Tokenizer

import smalltalk
import tasks
import toolbox
from heldout import is_held_out

# How often each kind of exchange is drawn; addition and sorting are the hardest to learn.
MIX = {"repeat": 2, "lookup": 3, "count": 1.5, "add": 7, "sort": 6, "json": 2.5, "talk": 2}
TOOL_CHATS = 0.14
SYSTEM = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are a helpful and precise assistant.",
    "Answer briefly.",
    "You are a tiny model. Answer as well as you can.",
)


@dataclass
class Chat:
    messages: list[dict]
    tools: list[dict] = field(default_factory=list)


def exchange(rng: random.Random, mix: dict[str, float]) -> list[dict]:
    kind = rng.choices(list(mix), list(mix.values()))[0]
    if kind == "talk":
        return smalltalk.exchange(rng)
    problem = tasks.trainable(kind, rng)
    return [*problem.turns, tasks.assistant(problem.answer)]


def tool_exchange(rng: random.Random, offered: list[toolbox.Tool]) -> tuple[list[dict], list[dict]]:
    while is_held_out((problem := tasks.tools_of(rng, offered)).key):
        pass
    return [*problem.turns, tasks.assistant(problem.answer)], problem.tools


def chat(rng: random.Random, mix: dict[str, float] = MIX) -> Chat:
    """One to five exchanges, some with a system message, some with tools."""
    made = Chat([])
    if rng.random() < 0.25:
        made.messages.append({"role": "system", "content": rng.choice(SYSTEM)})
    exchanges = rng.choices((1, 2, 3, 4, 5), (45, 25, 15, 10, 5))[0]
    offered = toolbox.choose(rng) if rng.random() < TOOL_CHATS else []
    for index in range(exchanges):
        if offered and (index == 0 or rng.random() < 0.7):
            turns, schemas = tool_exchange(rng, offered)
            made.tools = made.tools or schemas
        elif offered:
            turns = smalltalk.exchange(rng) if rng.random() < 0.5 else exchange(rng, mix)
        else:
            turns = exchange(rng, mix)
        made.messages += turns
    return made


class Renderer:
    """Turns chats into token ids, with a mark on those that the assistant writes."""

    def __init__(self, model: Path):
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        environment = jinja2.Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = tasks.json.dumps
        self.template = environment.from_string((model / "chat_template.jinja").read_text("utf-8"))
        self.end = self.tokenizer.token_to_id("<|im_end|>")
        self.opening = self.encode("<|im_start|>assistant\n")

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prompt(self, messages: list[dict], tools: list[dict]) -> str:
        return self.template.render(messages=messages, tools=tools, add_generation_prompt=True)

    def __call__(self, made: Chat) -> tuple[np.ndarray, np.ndarray]:
        """Ids, and true where the assistant chose the token."""
        text = self.template.render(
            messages=made.messages, tools=made.tools, add_generation_prompt=False
        )
        ids = self.encode(text)
        written = np.zeros(len(ids), dtype=bool)
        position = 0
        while True:
            try:
                position = ids.index(self.opening[0], position)
            except ValueError:
                break
            if ids[position : position + len(self.opening)] == self.opening:
                first = position + len(self.opening)
                last = ids.index(self.end, first)
                written[first : last + 1] = True
                position = last
            position += 1
        return np.array(ids, dtype=np.uint16), written
