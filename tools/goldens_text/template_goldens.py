"""What jinja2 renders: the templates of tests/data/text/templates over many conversations, and the
snippets of snippets.py, in the environment that Hugging Face's transformers renders chat templates
in, except that lists may be changed. Errors are recorded with their messages.

Usage: python template_goldens.py (versions: requirements.txt)
"""

import datetime
import json
import pathlib

from jinja2 import exceptions
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import SandboxedEnvironment

from conversations import KEYWORDS, MESSAGES
from snippets import CONTEXT, SNIPPETS

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/data/text"
NOW = 1_710_412_345  # 2024-03-14 10:32:25 UTC
SPECIAL_TOKENS = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


class Generation(Extension):
    """{% generation %}: marks what the assistant wrote; prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def parsed_arguments(messages):
    """Arguments that are JSON text become the object, which the engine does before rendering."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", []):
            function = call.get("function", call)
            if isinstance(function.get("arguments"), str):
                function["arguments"] = json.loads(function["arguments"])
    return messages


def render(env, source, context):
    context = {"tools": None, "documents": None, "add_generation_prompt": False, **SPECIAL_TOKENS, **context}
    if "messages" in context:
        context["messages"] = parsed_arguments(context["messages"])
    try:
        return {"text": env.from_string(source).render(**json.loads(json.dumps(context)))}
    except (exceptions.TemplateError, ArithmeticError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        return {"error": str(error), "kind": type(error).__name__}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    env = environment()
    outputs = []  # template, name of the messages, index of the keywords, what came out
    for path in sorted((DATA / "templates").glob("*.jinja")):
        source = path.read_text()
        for name, messages in MESSAGES.items():
            for number, keywords in enumerate(KEYWORDS):
                result = render(env, source, {"messages": messages, **keywords})
                outputs.append([path.stem, name, number, result])
    write(
        DATA / "template_goldens.json",
        {"now": NOW, "special_tokens": SPECIAL_TOKENS, "messages": MESSAGES, "keywords": KEYWORDS, "outputs": outputs},
    )
    snippets = [[source, render(env, source, CONTEXT)] for source in SNIPPETS]
    write(
        DATA / "snippet_goldens.json",
        {"now": NOW, "special_tokens": SPECIAL_TOKENS, "context": CONTEXT, "snippets": snippets},
    )


if __name__ == "__main__":
    main()
