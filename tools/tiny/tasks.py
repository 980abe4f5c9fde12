"""The seven generated tasks. Every problem has one right answer, checked by exact match.

A generator takes a random source and returns a Problem. `Problem.key` names what is asked apart
from its wording; heldout.py keeps a tenth of all keys out of training.
"""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import smalltalk
import toolbox
from heldout import is_held_out
from words import (
    CITIES,
    COLORS,
    DAYS,
    FIRST_NAMES,
    JOBS,
    LAST_NAMES,
    MONTHS,
    WORDS,
    code,
    made_up_word,
)

NAMES = ("repeat", "lookup", "count", "add", "sort", "json", "tools")


@dataclass
class Problem:
    task: str
    key: str
    turns: list[dict]  # ends with a user or tool turn
    answer: str  # the assistant's text, tool calls written out
    tools: list[dict] = field(default_factory=list)


def user(content: str) -> dict:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict:
    return {"role": "assistant", "content": content}


# ---- repeat ------------------------------------------------------------------------------------

REPEAT = (
    "Repeat this: {}",
    "Repeat after me: {}",
    "Please repeat: {}",
    "Say this: {}",
    "Say {}",
    "Echo {}",
    "Echo the following text: {}",
    "Write {} and nothing else.",
    "Print this text: {}",
    "Can you say {}?",
    "Copy this exactly: {}",
    "Answer with {} only.",
)
REMEMBER = (
    "The codeword is {}. Remember it.",
    "Remember this codeword: {}",
    "Please remember the codeword {}.",
    "Our codeword today is {}.",
    "Keep this codeword in mind: {}",
    "The secret codeword is {}. I will ask for it later.",
)
REMEMBERED = "I will remember the codeword."
RECALL = (
    "What is the codeword?",
    "What was the codeword?",
    "Tell me the codeword.",
    "Please repeat the codeword.",
    "Which codeword did I give you?",
    "Do you remember the codeword?",
    "Say the codeword.",
)


def repeat(rng: random.Random) -> Problem:
    kind = rng.random()
    if kind < 0.45:
        text = rng.choice((code, code, made_up_word, lambda r: r.choice(WORDS)))(rng)
        turns = [user(rng.choice(REPEAT).format(text))]
    elif kind < 0.7:
        makers = (code, made_up_word, lambda r: r.choice(WORDS))
        text = " ".join(rng.choice(makers)(rng) for _ in range(rng.randint(2, 6)))
        turns = [user(rng.choice(REPEAT).format(text))]
    else:
        text = code(rng)
        turns = [user(rng.choice(REMEMBER).format(text)), assistant(REMEMBERED)]
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 4))):
            turns += distraction(rng)
        turns.append(user(rng.choice(RECALL)))
    return Problem("repeat", f"repeat {text}", turns, text)


def distraction(rng: random.Random) -> list[dict]:
    """A finished exchange that may stand between a fact and the question about it."""
    if rng.random() < 0.5:
        return smalltalk.exchange(rng)
    other = trainable(rng.choice(("add", "sort", "count")), rng)
    return [*other.turns, assistant(other.answer)]


# ---- lookup ------------------------------------------------------------------------------------

FILLER: list[str] = []  # sentences of the prose corpus; load_filler() fills it


def load_filler(path: Path) -> None:
    """Reads sentences that may stand between a list and the question about it."""
    for line in path.read_text("utf-8").splitlines():
        for paragraph in json.loads(line).split("\n"):
            if 60 <= len(paragraph) <= 500 and '"' not in paragraph:
                FILLER.append(paragraph)


# What the keys are, what the values are, the heading, and ways to ask.
LISTS = (
    (
        lambda r: f"{r.choice(FIRST_NAMES)} {r.choice(LAST_NAMES)}",
        lambda r: str(r.randint(100, 9999)),
        ("Here is the phone list:", "These are our phone numbers:", "Phone list:"),
        ("What is the number of {}?", "Which number does {} have?", "Find the number of {}."),
    ),
    (
        lambda r: r.choice(FIRST_NAMES),
        lambda r: r.choice(CITIES),
        ("This is where everyone lives:", "Here is a list of people and cities:", "Cities:"),
        ("Where does {} live?", "In which city does {} live?", "Which city belongs to {}?"),
    ),
    (
        lambda r: r.choice(WORDS),
        lambda r: str(r.randint(1, 999)),
        ("Here is the price list:", "Prices:", "These are the prices in our shop:"),
        ("What is the price of {}?", "How much is {}?", "Look up the price of {}."),
    ),
    (
        lambda r: r.choice(WORDS),
        lambda r: r.choice(COLORS),
        ("Here are some things and their colors:", "Colors:", "Remember these colors:"),
        ("What is the color of {}?", "Which color has {}?", "Look up the color of {}."),
    ),
    (
        code,
        code,
        ("Here is a table of codes:", "Codes:", "Use this list of keys and values:"),
        ("What is the value of {}?", "Look up {}.", "Which value belongs to {}?"),
    ),
    (
        lambda r: r.choice(WORDS),
        code,
        ("Here is the list:", "Here is a list of keys and values:", "Dictionary:"),
        ("What is the value of {}?", "Look up {}.", "What does the list say about {}?"),
    ),
    (
        lambda r: f"room {r.randint(1, 400)}",
        lambda r: r.choice(FIRST_NAMES),
        ("Here is who works where:", "These are the rooms:", "Room list:"),
        ("Who is in {}?", "Who works in {}?", "Which person belongs to {}?"),
    ),
)
ENTRY_STYLES = ("{}: {}", "{}: {}", "{} = {}", "{} -> {}", "- {}: {}", "{} | {}")
READ = "I have read the list."


def lookup(rng: random.Random, longest: int = 60) -> Problem:
    make_key, make_value, headings, questions = rng.choice(LISTS)
    size = min(int(3 * 20 ** rng.random()), longest)  # 3 to 60, every doubling alike often
    entries: dict[str, str] = {}
    while len(entries) < size:
        entries[make_key(rng)] = make_value(rng)
    style = rng.choice(ENTRY_STYLES)
    lines = [style.format(key, value) for key, value in entries.items()]
    listing = rng.choice(headings) + "\n" + "\n".join(lines)
    asked = rng.choice(list(entries))
    question = rng.choice(questions).format(asked)
    filler = []
    if FILLER and rng.random() < 0.4:
        budget = rng.randint(100, 900 if size < 40 else 400)
        while (paragraph := rng.choice(FILLER)) and len(paragraph) < budget:
            filler.append(paragraph)
            budget -= len(paragraph)
    layout = rng.random()
    if layout < 0.6:
        turns = [user("\n\n".join([listing, *filler, question]))]
    else:
        turns = [user("\n\n".join([listing, *filler])), assistant(READ)]
        for _ in range(rng.choice((0, 0, 1, 2)) if size < 40 else 0):
            turns += distraction(rng)
        turns.append(user(question))
    key = f"lookup {asked} in {sorted(entries.items())}"
    return Problem("lookup", key, turns, entries[asked])


# ---- count -------------------------------------------------------------------------------------

COUNT = (
    "Count from {} to {}.",
    "Count from {} to {}",
    "Please count from {} to {}.",
    "Can you count from {} to {}?",
    "Count: {} to {}",
    "List the numbers from {} to {}.",
    "Write the numbers from {} to {}.",
    "Give me all numbers from {} to {}.",
    "Start at {} and count to {}.",
    "Say the numbers between {} and {}, both included.",
)


def count(rng: random.Random) -> Problem:
    start = rng.randint(0, rng.choice((20, 100, 990)))
    stop = start + rng.randint(2, 20)
    numbers = list(range(start, stop + 1))
    if rng.random() < 0.25:
        numbers.reverse()
    text = rng.choice(COUNT).format(numbers[0], numbers[-1])
    answer = ", ".join(map(str, numbers))
    return Problem("count", f"count {numbers[0]} {numbers[-1]}", [user(text)], answer)


# ---- add ---------------------------------------------------------------------------------------

ADD = (
    "What is {} + {}?",
    "What is {} plus {}?",
    "Add {} and {}.",
    "{} + {}",
    "{} + {} =",
    "{} + {} = ?",
    "Calculate {} + {}.",
    "Compute {} plus {}.",
    "How much is {} + {}?",
    "What is the sum of {} and {}?",
    "Please add {} and {}.",
    "Find the sum: {} + {}",
)


def add(rng: random.Random) -> Problem:
    limits = [(10, 99) if rng.random() < 0.35 else (100, 999) for _ in range(2)]
    a, b = (rng.randint(*limit) for limit in limits)
    answer = f"{a} + {b} = {a + b}"
    key = f"add {min(a, b)} {max(a, b)}"
    return Problem("add", key, [user(rng.choice(ADD).format(a, b))], answer)


# ---- sort --------------------------------------------------------------------------------------

SORT = (
    "Sort these words: {}",
    "Sort these words alphabetically: {}",
    "Please sort these words from A to Z: {}",
    "Put these words in alphabetical order: {}",
    "Put the words {} in alphabetical order.",
    "Sort from A to Z: {}",
    "Sort: {}",
    "Order these words alphabetically: {}",
    "Arrange these words in alphabetical order: {}",
    "Can you sort these words? {}",
    "Bring these words into alphabetical order: {}",
)


def sort(rng: random.Random) -> Problem:
    words = rng.sample(WORDS, rng.choice((3, 4, 4, 5, 5, 6, 7, 8)))
    listing = rng.choice((", ", ", ", ", ", " ")).join(words)
    answer = ", ".join(sorted(words))
    return Problem("sort", f"sort {answer}", [user(rng.choice(SORT).format(listing))], answer)


# ---- json --------------------------------------------------------------------------------------

# A field: its name, how to make a value, and sentences that state it about {s}.
PERSON = (
    ("age", lambda r: r.randint(5, 99), ("{s} is {v} years old.", "{s} turned {v} this year.")),
    ("city", lambda r: r.choice(CITIES), ("{s} lives in {v}.", "The home of {s} is {v}.")),
    ("job", lambda r: r.choice(JOBS), ("{s} works as a {v}.", "The job of {s} is {v}.")),
    (
        "color",
        lambda r: r.choice(COLORS),
        ("The favorite color of {s} is {v}.", "{s} likes {v} best of all colors."),
    ),
    ("pet", lambda r: r.choice(smalltalk.ANIMALS), ("{s} has a {v}.", "The pet of {s} is a {v}.")),
    (
        "birth_month",
        lambda r: r.choice(MONTHS),
        ("{s} was born in {v}.", "The birthday of {s} is in {v}."),
    ),
    (
        "siblings",
        lambda r: r.randint(2, 9),
        ("{s} has {v} siblings.", "There are {v} siblings in the family of {s}."),
    ),
    (
        "vegetarian",
        lambda r: r.random() < 0.5,
        (("{s} eats no meat.", "{s} eats meat."), ("{s} is a vegetarian.", "{s} is no vegetarian.")),
    ),
)
PRODUCT = (
    ("price", lambda r: r.randint(1, 999), ("{s} costs {v} euros.", "The price of {s} is {v}.")),
    ("color", lambda r: r.choice(COLORS), ("The color of {s} is {v}.", "{s} is {v}.")),
    ("stock", lambda r: r.randint(2, 500), ("We have {v} of {s}.", "{v} pieces of {s} are left.")),
    ("code", code, ("{s} has the code {v}.", "The code of {s} is {v}.")),
    ("shelf", lambda r: r.randint(1, 80), ("{s} is on shelf {v}.", "Look for {s} on shelf {v}.")),
    (
        "maker",
        lambda r: r.choice(LAST_NAMES),
        ("{s} is made by {v}.", "The maker of {s} is {v}."),
    ),
    (
        "fragile",
        lambda r: r.random() < 0.5,
        (("{s} breaks easily.", "{s} does not break."), ("{s} is fragile.", "{s} is not fragile.")),
    ),
)
TRIP = (
    ("from", lambda r: r.choice(CITIES), ("{s} starts in {v}.", "{s} leaves from {v}.")),
    ("to", lambda r: r.choice(CITIES), ("{s} goes to {v}.", "{s} ends in {v}.")),
    ("day", lambda r: r.choice(DAYS), ("{s} is on {v}.", "The day of {s} is {v}.")),
    ("seats", lambda r: r.randint(2, 300), ("{s} has {v} seats.", "There are {v} seats on {s}.")),
    ("hour", lambda r: r.randint(1, 23), ("{s} begins at {v} o'clock.", "{s} departs at {v}.")),
    (
        "guide",
        lambda r: r.choice(FIRST_NAMES),
        ("{v} is the guide of {s}.", "The guide of {s} is {v}."),
    ),
)
RECORDS = (
    ("name", lambda r: r.choice(FIRST_NAMES), PERSON),
    ("name", lambda r: f"{r.choice(FIRST_NAMES)} {r.choice(LAST_NAMES)}", PERSON),
    ("item", lambda r: r.choice(WORDS), PRODUCT),
    ("trip", lambda r: f"trip {r.choice('ABCDEFGH')}{r.randint(1, 99)}", TRIP),
)
JSON = (
    "Fill in this JSON object: {o}\n\n{f}",
    "Fill in the JSON object {o} from these facts: {f}",
    "{f}\n\nFill in this JSON object: {o}",
    "Facts: {f}\nWrite them as JSON like this: {o}",
    "Read this: {f}\n\nComplete the JSON object: {o}",
    "Complete this JSON: {o}\n{f}",
    "Here are some facts. {f} Put them into this JSON object: {o}",
    "Use the facts to fill this JSON object.\n{o}\nFacts: {f}",
    "Turn this into JSON: {f}\nUse this form: {o}",
    "{f} Please fill in {o}",
)


def json_object(rng: random.Random) -> Problem:
    title, make_subject, fields = rng.choice(RECORDS)
    subject = make_subject(rng)
    chosen = rng.sample(fields, rng.randint(2, min(5, len(fields))))
    record: dict = {title: subject}
    facts = []
    for name, make, sentences in chosen:
        value = record[name] = make(rng)
        sentence = rng.choice(sentences)
        if isinstance(value, bool):
            sentence = sentence[not value]
        facts.append(sentence.format(s=subject, v=value))
    rng.shuffle(facts)
    names = list(record)
    if rng.random() < 0.3:
        rng.shuffle(names)
    record = {name: record[name] for name in names}
    empty = {
        name: False if isinstance(value, bool) else 0 if isinstance(value, int) else ""
        for name, value in record.items()
    }
    text = rng.choice(JSON).format(o=json.dumps(empty), f=" ".join(facts))
    answer = json.dumps(record)
    return Problem("json", f"json {json.dumps(record, sort_keys=True)}", [user(text)], answer)


# ---- tools -------------------------------------------------------------------------------------


def tools(rng: random.Random) -> Problem:
    """Call the right one of several tools, or answer from what a tool returned."""
    return tools_of(rng, toolbox.choose(rng))


def tools_of(rng: random.Random, offered: list[toolbox.Tool]) -> Problem:
    tool = rng.choice(offered)
    arguments = tool.make_arguments(rng)
    turns = [user(tool.ask(rng, arguments))]
    key = f"tools {tool.name} {json.dumps(arguments, sort_keys=True)}"
    answer = toolbox.written_call(tool.name, arguments)
    if rng.random() < 0.4:
        result, answer = tool.respond(rng, arguments)
        call = {"type": "function", "function": {"name": tool.name, "arguments": arguments}}
        turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
        turns.append({"role": "tool", "content": json.dumps(result)})
        key += f" {json.dumps(result)}"
    return Problem("tools", key, turns, answer, [t.schema(rng) for t in offered])


GENERATORS = {
    "repeat": repeat,
    "lookup": lookup,
    "count": count,
    "add": add,
    "sort": sort,
    "json": json_object,
    "tools": tools,
}


def trainable(task: str, rng: random.Random) -> Problem:
    """A problem that may be trained on."""
    while is_held_out((problem := GENERATORS[task](rng)).key):
        pass
    return problem


def held_out(task: str, rng: random.Random) -> Problem:
    """A problem that is never trained on."""
    while not is_held_out((problem := GENERATORS[task](rng)).key):
        pass
    return problem
