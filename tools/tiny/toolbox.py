"""The tools of the tool-calling task: a catalogue of everyday ones, and made-up ones."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from words import CITIES, COLORS, DAYS, FIRST_NAMES, WORDS, code, made_up_word

Maker = Callable[[random.Random], object]


@dataclass
class Tool:
    name: str
    description: str
    parameters: dict[str, tuple[Maker, str]]  # name -> (maker of a value, description)
    requests: tuple[str, ...]  # with {parameter} places
    results: dict[str, Maker]  # what it returns
    answer: str  # with {parameter} and {result} places

    def make_arguments(self, rng: random.Random) -> dict:
        return {name: make(rng) for name, (make, _) in self.parameters.items()}

    def ask(self, rng: random.Random, arguments: dict) -> str:
        return rng.choice(self.requests).format(**arguments)

    def respond(self, rng: random.Random, arguments: dict) -> tuple[dict, str]:
        """What the tool returns, and how the assistant tells it."""
        result = {name: make(rng) for name, make in self.results.items()}
        return result, self.answer.format(**{**arguments, **result})

    def schema(self, rng: random.Random) -> dict:
        """The function schema of the OpenAI interface."""
        probe = random.Random(0)
        described = rng.random() < 0.3
        properties = {}
        for name, (make, description) in self.parameters.items():
            kind = "integer" if isinstance(make(probe), int) else "string"
            properties[name] = {"type": kind}
            if described:
                properties[name]["description"] = description
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
            },
        }
        return {"type": "function", "function": function}


def written_call(name: str, arguments: dict) -> str:
    """A tool call as the assistant writes it."""
    lines = ["<tool_call>", f"<function={name}>"]
    for parameter, value in arguments.items():
        lines += [f"<parameter={parameter}>", str(value), "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def one_of(values) -> Maker:
    return lambda rng: rng.choice(values)


def number(low: int, high: int) -> Maker:
    return lambda rng: rng.randint(low, high)


city, name, day, word = one_of(CITIES), one_of(FIRST_NAMES), one_of(DAYS), one_of(WORDS)
color = one_of(COLORS)

CATALOGUE = (
    Tool(
        "get_weather",
        "Get the weather of a city.",
        {"city": (city, "name of the city")},
        (
            "What is the weather in {city}?",
            "How is the weather in {city} today?",
            "Please check the weather in {city}.",
            "Is it warm in {city}?",
        ),
        {"temperature": number(1, 39), "sky": one_of(("sunny", "cloudy", "rainy", "windy"))},
        "It is {sky} in {city}, and the temperature is {temperature} degrees.",
    ),
    Tool(
        "get_time",
        "Get the time in a city.",
        {"city": (city, "name of the city")},
        ("What time is it in {city}?", "Tell me the time in {city}.", "How late is it in {city}?"),
        {"time": lambda r: f"{r.randint(0, 23):02}:{r.randint(0, 59):02}"},
        "It is {time} in {city}.",
    ),
    Tool(
        "send_message",
        "Send a message to a person.",
        {"to": (name, "who gets it"), "text": (lambda r: message(r), "the message")},
        (
            "Send a message to {to}: {text}",
            "Tell {to}: {text}",
            "Write to {to}: {text}",
            "Please send {to} this message: {text}",
        ),
        {"status": one_of(("sent", "sent", "failed"))},
        "The message to {to} was {status}.",
    ),
    Tool(
        "set_timer",
        "Start a timer.",
        {"minutes": (number(1, 120), "length in minutes")},
        (
            "Set a timer for {minutes} minutes.",
            "Start a timer of {minutes} minutes.",
            "Wake me in {minutes} minutes.",
            "I need a timer for {minutes} minutes.",
        ),
        {"timer": number(1, 99)},
        "Timer {timer} is set for {minutes} minutes.",
    ),
    Tool(
        "book_table",
        "Book a table in a restaurant.",
        {"day": (day, "day of the week"), "people": (number(2, 12), "how many people")},
        (
            "Book a table for {people} people on {day}.",
            "I need a table on {day} for {people} people.",
            "Reserve a table for {people} on {day}.",
            "We are {people} people and want to eat out on {day}.",
        ),
        {"table": number(1, 60)},
        "Table {table} is booked for {people} people on {day}.",
    ),
    Tool(
        "book_flight",
        "Book a flight between two cities.",
        {
            "origin": (city, "city of departure"),
            "destination": (city, "city of arrival"),
            "day": (day, "day of the week"),
        },
        (
            "Book a flight from {origin} to {destination} on {day}.",
            "I want to fly from {origin} to {destination} on {day}.",
            "On {day} I need a flight from {origin} to {destination}.",
        ),
        {"flight": lambda r: f"{r.choice('ABCDEFGH')}{r.choice('KLMNPQRS')}{r.randint(100, 999)}"},
        "Flight {flight} from {origin} to {destination} is booked for {day}.",
    ),
    Tool(
        "find_user",
        "Find a user by id.",
        {"user_id": (number(1, 9999), "the user's id")},
        ("Who is user {user_id}?", "Find the user with id {user_id}.", "Look up user {user_id}."),
        {"name": name, "city": city},
        "User {user_id} is {name} from {city}.",
    ),
    Tool(
        "play_song",
        "Play a song.",
        {"title": (lambda r: f"{r.choice(WORDS)} {r.choice(WORDS)}", "title of the song")},
        ("Play the song {title}.", "I want to hear {title}.", "Please play {title}."),
        {"seconds": number(90, 400)},
        "Now playing {title}, {seconds} seconds long.",
    ),
    Tool(
        "set_light",
        "Change the light of a room.",
        {
            "room": (one_of(("kitchen", "bedroom", "hall", "office", "garden", "bathroom")), "room"),
            "color": (color, "color of the light"),
        },
        (
            "Make the light in the {room} {color}.",
            "Set the {room} light to {color}.",
            "I want {color} light in the {room}.",
        ),
        {"status": one_of(("on", "on", "off"))},
        "The {color} light in the {room} is {status}.",
    ),
    Tool(
        "get_price",
        "Get the price of a product.",
        {"product": (word, "name of the product")},
        ("How much is the {product}?", "What does the {product} cost?", "Price of {product}?"),
        {"price": number(1, 999), "stock": number(2, 99)},
        "The {product} costs {price}, and {stock} are in stock.",
    ),
    Tool(
        "order_product",
        "Order a product.",
        {"product": (word, "name of the product"), "amount": (number(2, 50), "how many")},
        (
            "Order {amount} of {product}.",
            "Please buy {amount} times {product}.",
            "We need {amount} pieces of {product}.",
        ),
        {"order": number(100, 9999)},
        "Order {order} is placed: {amount} of {product}.",
    ),
    Tool(
        "add_event",
        "Add an event to the calendar.",
        {
            "title": (one_of(("lunch", "meeting", "training", "dinner", "concert", "call")), "what"),
            "day": (day, "day of the week"),
            "hour": (number(8, 22), "hour of the day"),
        },
        (
            "Add a {title} on {day} at {hour} to my calendar.",
            "Put {title} into the calendar for {day} at {hour}.",
            "I have a {title} on {day} at {hour}, please note it.",
        ),
        {"event": number(1, 999)},
        "Event {event} is in the calendar: {title} on {day} at {hour}.",
    ),
    Tool(
        "multiply",
        "Multiply two numbers.",
        {"a": (number(2, 999), "first number"), "b": (number(2, 999), "second number")},
        ("What is {a} times {b}?", "Multiply {a} by {b}.", "Compute {a} * {b}."),
        {"product": number(4, 99999)},
        "{a} times {b} is {product}.",
    ),
    Tool(
        "translate",
        "Translate a word into another language.",
        {
            "word": (word, "the word"),
            "language": (one_of(("French", "German", "Italian", "Spanish", "Thai")), "language"),
        },
        (
            "What is {word} in {language}?",
            "Translate {word} into {language}.",
            "How do you say {word} in {language}?",
        ),
        {"translation": made_up_word},
        "In {language}, {word} is {translation}.",
    ),
    Tool(
        "search_books",
        "Search the library for books.",
        {"topic": (word, "topic of the books"), "limit": (number(2, 20), "how many at most")},
        (
            "Find up to {limit} books about {topic}.",
            "Search for books about {topic}, at most {limit}.",
            "Show me {limit} books on {topic}.",
        ),
        {"found": number(2, 20), "shelf": number(1, 90)},
        "I found {found} books about {topic} on shelf {shelf}.",
    ),
    Tool(
        "open_door",
        "Open a door with a code.",
        {"door": (number(1, 50), "number of the door"), "code": (code, "secret code")},
        (
            "Open door {door} with code {code}.",
            "Use the code {code} to open door {door}.",
            "Please open door {door}, the code is {code}.",
        ),
        {"status": one_of(("open", "open", "locked"))},
        "Door {door} is {status}.",
    ),
)


def message(rng: random.Random) -> str:
    """A short sentence worth sending."""
    return rng.choice(
        (
            "I will be {} minutes late".format(rng.randint(2, 60)),
            "please bring the {}".format(rng.choice(WORDS)),
            "see you on {}".format(rng.choice(DAYS)),
            "the {} is in the {}".format(rng.choice(WORDS), rng.choice(WORDS)),
            "call me at {}".format(rng.randint(1, 12)),
            "the code is {}".format(code(rng)),
        )
    )


VERBS = "get set find make read open send check list start stop move load save".split()
MADE_UP_REQUESTS = (
    "Call {tool} with {pairs}.",
    "Use {tool} with {pairs}.",
    "Please call {tool} with {pairs}.",
    "Run {tool} with {pairs}.",
    "Call the tool {tool} with {pairs}.",
)


def made_up_tool(rng: random.Random) -> Tool:
    """A tool that no one has seen before, asked for by its name."""
    noun = rng.choice((rng.choice(WORDS), made_up_word(rng)))
    parameters = {}
    for parameter in rng.sample(("id", "name", "value", "key", "size", "level", "target", "mode",
                                 rng.choice(WORDS), made_up_word(rng)), rng.randint(1, 3)):
        make = rng.choice((number(1, 999), word, code, name))
        parameters[parameter] = (make, f"the {parameter}")
    tool_name = f"{rng.choice(VERBS)}_{noun}"
    pairs = [f"{p} {{{p}}}" for p in parameters]
    listing = pairs[0] if len(pairs) == 1 else ", ".join(pairs[:-1]) + " and " + pairs[-1]
    return Tool(
        tool_name,
        f"{tool_name.split('_')[0].capitalize()} the {noun}.",
        parameters,
        tuple(r.format(tool=tool_name, pairs=listing) for r in MADE_UP_REQUESTS),
        {"result": rng.choice((code, number(1, 9999), word))},
        "The result is {result}.",
    )


def choose(rng: random.Random) -> list[Tool]:
    """One to four tools with different names, in random order."""
    made_up = rng.random() < 0.25
    offered = rng.sample(CATALOGUE, rng.randint(1, 3 if made_up else 4))
    if made_up:
        offered[rng.randrange(len(offered))] = made_up_tool(rng)
        offered = offered + [made_up_tool(rng)] if rng.random() < 0.3 else offered
    return offered
