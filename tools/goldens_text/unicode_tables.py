"""Where the `tokenizers` package and libutf8proc know different Unicode versions.

`tokenizers` splits words by the character classes of its regex engine (Unicode 16 in 0.23.3) and
normalises by an older table of its own; libutf8proc 2.8 has Unicode 15 for both. This script finds
every code point for which that matters and writes

  src/text/unicode_tables.inc            what src/text/unicode.cpp has to correct
  tests/data/text/unicode_classes.txt    the classes of all code points, for an exhaustive test

Usage: python unicode_tables.py (libutf8proc.so.2 of version 2.8 in the loader's path).
"""

import ctypes
import pathlib

from tokenizers import Regex, normalizers
from tokenizers.pre_tokenizers import Split

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORY_LETTERS = ["C", "L", "L", "L", "L", "L", "M", "M", "M", "N", "N", "N"]

utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_NFC.restype = ctypes.c_void_p
utf8proc.utf8proc_NFD.restype = ctypes.c_void_p
utf8proc.utf8proc_category.argtypes = [ctypes.c_int32]
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]


def normalised_by_utf8proc(function, text):
    pointer = function(ctypes.c_char_p(text.encode()))
    result = ctypes.string_at(pointer).decode()
    libc.free(pointer)
    return result


def members_by_tokenizers(pattern):
    split = Split(Regex(pattern), "removed")
    members = set()
    for start in range(0, len(CODE_POINTS), 4096):
        block = CODE_POINTS[start : start + 4096]
        left = set("".join(t for t, _ in split.pre_tokenize_str("".join(map(chr, block)))))
        members |= {c for c in block if chr(c) not in left}
    return members


def members_by_utf8proc(letter):
    categories = (utf8proc.utf8proc_category(c) for c in CODE_POINTS)
    return {
        c
        for c, category in zip(CODE_POINTS, categories)
        if category < len(CATEGORY_LETTERS) and CATEGORY_LETTERS[category] == letter
    }


def ranges(members):
    result = []
    for c in sorted(members):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def unknown_to_the_normalizer():
    """Code points that `tokenizers` takes for starters that compose with nothing."""
    nfc = normalizers.NFC().normalize_str
    unknown = set()
    for c in CODE_POINTS[1:]:
        text = "\u0327\u0301" + chr(c) + "\u0327\u0301\u0316"
        if nfc(text) != normalised_by_utf8proc(utf8proc.utf8proc_NFC, text):
            unknown.add(c)
    for c in CODE_POINTS[1:]:
        parts = normalised_by_utf8proc(utf8proc.utf8proc_NFD, chr(c))
        if len(parts) > 1 and nfc(parts) != normalised_by_utf8proc(utf8proc.utf8proc_NFC, parts):
            unknown.add(ord(parts[-1]))
    return unknown


def table(name, comment, members):
    rows = "\n".join(f"    {{0x{a:04X}, 0x{b:04X}}}," for a, b in ranges(members))
    return f"// {comment}\nconstexpr CodePointRange {name}[] = {{\n{rows}\n}};\n"


def main():
    classes = {}
    newer = {}
    for letter in "LMN":
        classes[letter] = members_by_tokenizers(rf"\p{{{letter}}}")
        known = members_by_utf8proc(letter)
        assert known <= classes[letter]
        newer[letter] = classes[letter] - known
    inc = [
        "// Made by tools/goldens_text/unicode_tables.py. Ranges are inclusive and ascending.\n"
        "// clang-format off\n",
        table("kNewerLetters", "Letters (L) that libutf8proc 2.8 does not know.", newer["L"]),
        table("kNewerMarks", "Marks (M) that libutf8proc 2.8 does not know.", newer["M"]),
        table("kNewerNumbers", "Numbers (N) that libutf8proc 2.8 does not know.", newer["N"]),
        table(
            "kNeverReordered",
            "Marks that the normalizer of `tokenizers` does not know: it neither reorders nor "
            "composes\n// them.",
            unknown_to_the_normalizer(),
        ),
    ]
    (ROOT / "src/text/unicode_tables.inc").write_text("\n".join(inc))
    with open(ROOT / "tests/data/text/unicode_classes.txt", "w") as out:
        out.write("# class first last, by tokenizers; made by tools/goldens_text/unicode_tables.py\n")
        classes["S"] = members_by_tokenizers(r"\s")
        for letter in "LMNS":
            for a, b in ranges(classes[letter]):
                out.write(f"{letter} {a:X} {b:X}\n")


main()
