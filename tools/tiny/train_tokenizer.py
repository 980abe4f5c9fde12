"""Trains the byte-level BPE and writes tokenizer.json and tokenizer_config.json.

    python train_tokenizer.py --corpus DIR --model models/tiny [--vocabulary 4080]

Normaliser, pre-tokeniser and decoder are those of the Qwen3.5 family. While merges are learned,
line breaks and punctuation are split from letters as well, so no token spans the border between a
template and a message: tokenising them apart or together gives the same ids.
"""

import argparse
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

import chats
import smalltalk

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BORDERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)| ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|[\r\n]+|\s+"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# A flatter mix than the training's, so that merges favour no task.
MIX = chats.MIX | {"add": 5, "sort": 4}
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def training_texts(corpus: Path, seed: int):
    """The prose once, and enough generated chats to learn their words."""
    for path in sorted(corpus.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            yield json.loads(line)
    rng = random.Random(seed)
    for _ in range(30000):
        for message in chats.chat(rng, MIX).messages:
            yield message["role"] + "\n" + message["content"]
    for _ in range(2000):
        yield json.dumps(chats.toolbox.made_up_tool(rng).schema(rng))
        yield smalltalk.story(rng, rng.choice(smalltalk.ANIMALS))
        for tool in chats.toolbox.CATALOGUE:
            yield json.dumps(tool.schema(rng))
            yield chats.toolbox.written_call(tool.name, tool.make_arguments(rng))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=4080, help="size without added tokens")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split(PATTERN), split(BORDERS), byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=16,
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(options.corpus, options.seed), trainer)

    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split(PATTERN), byte_level])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False)
    for names, special in ((SPECIAL, True), (TAGS, False)):
        tokens = [AddedToken(name, special=special, normalized=False) for name in names]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(tokens)

    options.model.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.model / "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(name)): {
                "content": name,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": name in SPECIAL,
            }
            for name in SPECIAL + TAGS
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 4096,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    path = options.model / "tokenizer_config.json"
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    print(f"{tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
