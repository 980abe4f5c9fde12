"""What Hugging Face's transformers makes of models/tiny's tokenizer and chat template: ids of texts,
and text and ids of rendered conversations. To be made again whenever either of the two files
changes.

Usage: python tiny_goldens.py (versions: requirements.txt, and transformers 5.24.0)
"""

import copy
import json
import pathlib

from transformers import AutoTokenizer

from conversations import ADD, MESSAGES, WEATHER
from texts import CASES, PASSAGES

ROOT = pathlib.Path(__file__).resolve().parents[2]

tokenizer = AutoTokenizer.from_pretrained(ROOT / "models/tiny")
texts = [text for passages in PASSAGES.values() for text in passages] + CASES
prompts = []
for name, messages in MESSAGES.items():
    if name in ("arguments_as_text", "control_tokens", "thinking_in_content", "none"):
        # The engine parses arguments, and keeps messages from becoming control tokens; transformers
        # does neither. An empty conversation it refuses before the template sees it.
        continue
    for tools in (None, [WEATHER, ADD]):
        for opener in (False, True):
            context = {"messages": messages, "add_generation_prompt": opener}
            if tools:
                context["tools"] = tools
            try:
                text = tokenizer.apply_chat_template(
                    copy.deepcopy(messages), tools=tools, add_generation_prompt=opener, tokenize=False
                )
            except Exception as error:  # the template's refusal
                prompts.append([context, {"error": str(error)}])
                continue
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            prompts.append([context, {"text": text, "ids": ids}])
goldens = {
    "encode": [[text, tokenizer(text, add_special_tokens=False)["input_ids"]] for text in texts],
    "prompts": prompts,
}
out = json.dumps(goldens, ensure_ascii=False, separators=(",", ":"))
(ROOT / "tests/data/text/tiny_goldens.json").write_text(out + "\n")
print(len(texts), "texts,", len(prompts), "prompts,", sum("error" in p[1] for p in prompts), "refused")
