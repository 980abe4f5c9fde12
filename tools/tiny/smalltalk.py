"""Greetings, questions about the model, and short stories: what makes a chat read sensibly."""

import random

from words import CITIES, COLORS, FIRST_NAMES, WORDS

ABOUT = (
    "I am a tiny language model that lives inside replayssm.cpp. I can repeat words, look things up"
    " in a list, count, add, sort words, fill in JSON and call tools."
)
TINY = "I am only a tiny model and I do not know that. I can repeat, look up, count, add and sort."

# Each entry: ways to say it, and the answers to choose from.
EXCHANGES = (
    (
        ("Hello!", "Hello", "Hi", "Hi!", "Hi there", "Hey", "Hello there!", "hello", "hi", "Hey!"),
        (
            "Hello! How can I help you today?",
            "Hello! What would you like to do?",
            "Hi! How can I help you?",
        ),
    ),
    (
        ("Good morning!", "Good morning", "Good evening!", "Good evening", "Good afternoon"),
        ("{same}! How can I help you?",),
    ),
    (
        (
            "Who are you?",
            "What are you?",
            "Tell me about yourself.",
            "Please introduce yourself.",
            "What is your name?",
            "Are you a language model?",
        ),
        (ABOUT,),
    ),
    (
        ("What can you do?", "How can you help me?", "What are you good at?", "Help", "help"),
        (
            "I can repeat words, look things up in a list, count, add, sort words, fill in JSON,"
            " call tools and continue English prose.",
        ),
    ),
    (
        ("How are you?", "How are you today?", "How is it going?", "How do you do?"),
        ("I am well, thank you. How can I help you?",),
    ),
    (
        ("Thank you!", "Thanks!", "Thanks", "Thank you very much.", "Thank you", "Great, thanks!"),
        ("You are welcome!", "You are welcome. Is there anything else I can do?"),
    ),
    (
        ("Goodbye!", "Bye", "Bye!", "See you later.", "Goodbye", "Good night!"),
        ("Goodbye! Have a good day.", "Goodbye!"),
    ),
    (
        ("What is the state of a linear attention model?", "What is a recurrent state?"),
        (
            "It is a fixed amount of memory that every new token updates, so a long conversation"
            " needs no more room than a short one.",
        ),
    ),
    (
        ("What is replayssm.cpp?", "What is ReplaySSM?", "Tell me about replayssm.cpp."),
        (
            "It is an engine for hybrid linear-attention language models. It keeps the last few"
            " tokens in a ring and replays them instead of writing the whole state at every step.",
        ),
    ),
    (
        (
            "What is the meaning of life?",
            "Who won the game yesterday?",
            "What is the capital of the moon?",
            "What will happen tomorrow?",
            "Can you write a program for me?",
            "Translate this into French.",
            "What is the news today?",
        ),
        (TINY,),
    ),
)

STORY_REQUESTS = (
    "Tell me a story.",
    "Tell me a short story.",
    "Can you tell me a story?",
    "Write a short story.",
    "Please write a little story.",
    "I would like to hear a story.",
)
STORY_REQUESTS_ABOUT = (
    "Tell me a story about a {animal}.",
    "Tell me a short story about a {animal}.",
    "Write a short story about a {animal}.",
    "Can you tell me a story about a {animal}?",
)
ANIMALS = (
    "bear beaver camel cat cow deer dog dolphin donkey duck eagle falcon fox frog giraffe goat"
    " goose hawk horse kitten lamb lion lizard monkey mouse otter owl panda parrot pony rabbit"
    " raven robin sheep snail snake spider squirrel swan tiger turtle whale wolf zebra"
).split()
PLACES = (
    "by a quiet river",
    "at the edge of a forest",
    "in a small village",
    "under an old bridge",
    "on a green hill",
    "in a sunny garden",
    "near the sea",
    "behind a red barn",
)
WANTS = (
    ("find a {thing}", "looked in every corner", "found a {color} {thing} under a tree"),
    ("make a new friend", "walked down the road", "met a {friend} who was lonely too"),
    ("see the sea", "followed the river all day", "stood on the beach and heard the waves"),
    ("learn to sing", "practiced every morning", "sang a song that everyone liked"),
    ("build a house", "carried wood and stone", "had a warm room with a {color} door"),
    ("cross the mountain", "climbed for three days", "saw the whole valley from the top"),
    ("bake a cake", "asked a {friend} for help", "shared a sweet cake with all the neighbors"),
)
TROUBLES = (
    "It began to rain, but the {animal} did not stop.",
    "The way was long, and the {animal} was tired.",
    "A {friend} laughed and said that it could not be done.",
    "The night was dark, and the {animal} was a little afraid.",
    "At first nothing went well.",
)
ENDINGS = (
    "From that day on the {animal} was happy.",
    "The {animal} went home and slept well.",
    "And they all lived happily ever after.",
    '"I am glad that I tried," said the {animal}.',
    "That evening the stars were bright, and the {animal} smiled.",
)


def story(rng: random.Random, animal: str) -> str:
    """A story of a few plain sentences about one animal."""
    want, effort, success = rng.choice(WANTS)
    opening = rng.choice(("Once upon a time", "Once upon a time", "Long ago", "One day"))
    friend = rng.choice([other for other in ANIMALS if other != animal])
    text = (
        f"{opening} there was a {rng.choice(('little', 'young', 'small', 'clever'))} {animal} who"
        f" lived {rng.choice(PLACES)}. The {animal} wanted to {want}. So the {animal} {effort}."
        f" {rng.choice(TROUBLES)} In the end the {animal} {success}. {rng.choice(ENDINGS)}"
    )
    text = text.format(
        thing=rng.choice(WORDS), color=rng.choice(COLORS), friend=friend, animal=animal
    )
    for vowel in "aeiou":
        text = text.replace(f" a {vowel}", f" an {vowel}")
    return text


def exchange(rng: random.Random) -> list[dict]:
    """One user turn and the assistant's answer."""
    kind = rng.random()
    if kind < 0.15:
        question, answer = rng.choice(STORY_REQUESTS), story(rng, rng.choice(ANIMALS))
    elif kind < 0.3:
        animal = rng.choice(ANIMALS)
        question = rng.choice(STORY_REQUESTS_ABOUT).format(animal=animal)
        question = question.replace(" a e", " an e").replace(" a o", " an o")
        answer = story(rng, animal)
    elif kind < 0.4:
        name, city = rng.choice(FIRST_NAMES), rng.choice(CITIES)
        question = rng.choice(
            (f"My name is {name}.", f"I am {name}.", f"Hello, I am {name} from {city}.")
        )
        answer = f"Nice to meet you, {name}! How can I help you?"
    else:
        questions, answers = rng.choice(EXCHANGES)
        question = rng.choice(questions)
        answer = rng.choice(answers).replace("{same}", question.rstrip("!."))
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    ]
