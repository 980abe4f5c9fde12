"""Small byte-level BPEs with the split patterns of Qwen3 and Qwen3.5, and what the `tokenizers`
package makes of many texts with them. Everything is written to tests/data/text/.

Usage: python tokenizer_goldens.py (versions: requirements.txt)
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from texts import CASES, PASSAGES, POOLS

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/data/text"

PATTERNS = {
    "qwen3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NOT_SPECIAL = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
# These are in tokenizer_config.json only, as in some published checkpoints.
CONFIG_ONLY = ["<think>", "</think>"]


def corpus():
    texts = [text for passages in PASSAGES.values() for text in passages]
    # White space, line ends and repetitions are learnt only if they are seen often.
    extra = ["\n\n\n" + " " * 8 + "x\n\n" + " " * 4 + "y\r\n\r\n\tz\n\n\n\n", "aaaaaaaa abababab ==== ----"]
    return (texts + extra * 5) * 3


def train(pattern, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        ),
    )
    return tokenizer


def added(token, special):
    return AddedToken(token, special=special, normalized=False)


def config_entry(token, special):
    flags = dict.fromkeys(["lstrip", "normalized", "rstrip", "single_word"], False)
    return {"content": token, "special": special, **flags}


def random_texts(count, seed):
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        pools = rng.sample(POOLS, rng.choice([1, 1, 2, 3]))
        texts.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 40))))
    return texts


def random_bytes(count, seed):
    """Bytes with every kind of damage: cut, doubled, reversed and random."""
    rng = random.Random(seed)
    material = [c.encode() for pool in POOLS for c in pool]
    cases = [
        b"\xff", b"\x80", b"\xc0\xaf", b"\xe2\x82", b"\xe2\x82\xe2\x82\xac", b"\xf0\x9f\x98",
        b"\xf0\x9f\x98\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80",
        b"a\xe4\xb8b", b"\xe4\xb8\xad\xe6\x96", b"\xf0\x80\x80\x80", b"\xe0\x80\x80", b"\xc2",
    ]  # fmt: skip
    for _ in range(count):
        data = bytearray()
        for _ in range(rng.randint(1, 6)):
            piece = rng.choice(material)
            kind = rng.random()
            if kind < 0.3:
                piece = piece[: rng.randint(0, len(piece))]
            elif kind < 0.4:
                piece = piece[::-1]
            elif kind < 0.6:
                piece = bytes([rng.randrange(256)])
            data += piece
        cases.append(bytes(data))
    return cases


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def goldens(tokenizer, byte_ids, seed):
    plain = Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "added_tokens": []}))
    texts = [t for passages in PASSAGES.values() for t in passages] + CASES + random_texts(300, seed)
    encode = [[text, plain.encode(text).ids] for text in texts]
    trusted = [[t, tokenizer.encode(t).ids] for t in texts if tokenizer.encode(t).ids != plain.encode(t).ids]
    repaired = [
        [data.hex(), plain.encode(data.decode("utf-8", errors="replace")).ids]
        for data in random_bytes(60, seed + 1)
    ]
    rng = random.Random(seed + 2)
    decode = []
    for data in random_bytes(100, seed + 3):
        ids = [byte_ids[b] for b in data]
        assert tokenizer.decode(ids) == data.decode("utf-8", errors="replace")
        decode.append([ids, tokenizer.decode(ids), tokenizer.decode(ids)])
    for _ in range(100):
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randint(1, 12))]
        decode.append(
            [
                ids,
                tokenizer.decode(ids, skip_special_tokens=False),
                tokenizer.decode(ids, skip_special_tokens=True),
            ]
        )
    return {"encode": encode, "encode_with_added_tokens": trusted, "encode_bytes": repaired, "decode": decode}


def byte_tokens(tokenizer):
    """The id of each single byte: printable Latin-1 stands for itself, the rest from U+0100 on."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in itself]
    letters = {**{b: chr(b) for b in itself}, **{b: chr(0x100 + i) for i, b in enumerate(rest)}}
    return [tokenizer.get_vocab()[letters[byte]] for byte in range(256)]


def main():
    for number, (name, pattern) in enumerate(PATTERNS.items()):
        tokenizer = train(pattern, 1200 + 200 * number)
        tokenizer.add_tokens([added(t, True) for t in SPECIAL] + [added(t, False) for t in NOT_SPECIAL])
        stored = json.loads(tokenizer.to_str())
        if name == "qwen3":  # the older way to write merges
            stored["model"]["merges"] = [" ".join(pair) for pair in stored["model"]["merges"]]
        write(DATA / name / "tokenizer.json", stored)
        tokenizer.add_tokens([added(t, False) for t in CONFIG_ONLY])
        decoder = {
            str(tokenizer.token_to_id(t)): config_entry(t, t in SPECIAL)
            for t in SPECIAL + NOT_SPECIAL + CONFIG_ONLY
        }
        write(
            DATA / name / "tokenizer_config.json",
            {
                "added_tokens_decoder": decoder,
                "bos_token": None,
                "eos_token": "<|im_end|>",
                "pad_token": {"__type": "AddedToken", **config_entry("<|endoftext|>", True)},
            },
        )
        write(DATA / name / "goldens.json", goldens(tokenizer, byte_tokens(tokenizer), 100 * number))

    # Flags of added tokens, on top of the last tokenizer.
    flagged = Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "added_tokens": []}))
    flagged.add_tokens(
        [
            AddedToken("[L]", lstrip=True, normalized=False),
            AddedToken("[R]", rstrip=True, normalized=False),
            AddedToken("[B]", lstrip=True, rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("[N]", normalized=True),
            AddedToken("caf\u00e9", normalized=True),
            AddedToken("[R", normalized=False),
            AddedToken("[R][R]", normalized=False, special=True),
            AddedToken("né", normalized=False),
        ]
    )
    write(DATA / "flags/tokenizer.json", json.loads(flagged.to_str()))
    texts = [
        "a [L] b", "a [R] b", "a [B] b", " \n[L]\n [R]\n ", "[L][L] [L]  [R]  [B]  [B]x", "[R [R][R] [R][R][R]x",
        "word words sword word. _word word_ word1 1word wordword word", "\u0301word word\u0301 éword", "[N] [N]\u0301 x[N]y",
        "cafe\u0301 café cafés", "ne\u0301 né nés", "  [B]  ", "[R]\u3000\u00a0x", "x\u3000[L]", "[R]  [L]", "[B] word [B]",
    ]  # fmt: skip
    rng = random.Random(7)
    pieces = ["[L]", "[R]", "[B]", "word", "[N]", "cafe\u0301", "[R", " ", "  ", "\n", "x", "\u0301", "né", "."]
    texts += ["".join(rng.choice(pieces) for _ in range(rng.randint(2, 9))) for _ in range(120)]
    write(DATA / "flags/goldens.json", {"encode_with_added_tokens": [[t, flagged.encode(t).ids] for t in texts]})


main()
