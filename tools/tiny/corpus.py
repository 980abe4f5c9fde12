"""Builds the prose corpus: unpacks Debian packages into one JSON-lines file of documents a source.

    python corpus.py --packages DIR --out DIR [--download]

Only texts that may be trained on and shipped are read; models/tiny/NOTICE holds their notices.
"""

import argparse
import gzip
import json
import re
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

PACKAGES = (
    "bible-kjv",
    "bible-kjv-text",
    "r-cran-janeaustenr",
    "jargon-text",
    "wordnet-base",
    "dict-devil",
)


def paragraphs(text: str) -> list[str]:
    """Blank-line separated paragraphs with their lines joined."""
    blocks = re.split(r"\n\s*\n", text)
    return [joined for block in blocks if (joined := re.sub(r"\s+", " ", block).strip())]


def king_james(root: Path) -> list[str]:
    """One document a chapter; verses become lines, their numbers are dropped."""
    run = subprocess.run(
        [root / "usr/bin/bible", "-p", root / "usr/lib", "-l9999", "gen1:1-rev22:21"],
        capture_output=True,
        check=True,
    )
    documents: list[list[str]] = []
    for line in run.stdout.decode("utf-8").splitlines():
        verse = re.match(r"\s+\d+\s+(.*)", line)
        if verse:
            documents[-1].append(verse.group(1).strip())
        elif line.strip():
            documents.append([line.strip(), ""])
    return ["\n".join(lines) for lines in documents]


def r_strings(stream: bytes) -> list[str]:
    """The string vector of an R serialisation (XDR, version 3)."""
    native_length = struct.unpack(">i", stream[14:18])[0]
    offset = 18 + native_length
    flags, count = struct.unpack(">ii", stream[offset : offset + 8])
    if flags & 0xFF != 16:
        raise ValueError(f"R object type {flags & 0xFF} is not a string vector (16)")
    offset += 8
    strings = []
    for _ in range(count):
        length = struct.unpack(">i", stream[offset + 4 : offset + 8])[0]
        offset += 8
        strings.append(stream[offset : offset + length].decode("utf-8") if length >= 0 else "")
        offset += max(length, 0)
    return strings


def austen(root: Path) -> list[str]:
    """The six novels, one document a chapter, paragraphs unwrapped."""
    data = (root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    documents = []
    while data:
        inflater = zlib.decompressobj()
        lines = r_strings(inflater.decompress(data[4:]))
        data = inflater.unused_data
        for chapter in re.split(r"\n(?=(?:CHAPTER|Chapter) [0-9IVXL]+)", "\n".join(lines)):
            body = paragraphs(chapter.replace("--", " - ").replace("_", ""))
            if len(body) > 3:
                documents.append("\n\n".join(body))
    return documents


def jargon(root: Path) -> list[str]:
    """The Jargon File: its essays as one document, then one document an entry."""
    path = root / "usr/share/doc/jargon-text/jargon.txt.gz"
    text = gzip.open(path, "rt", encoding="utf-8").read()
    text = re.sub(r"[{}]", "", text)
    text = text.translate(str.maketrans("“”‘’—", "\"\"''-"))
    essays, *entries = re.split(r"\n\s*\n(?=   :[^:\n]+:[ \n])", text)
    documents = ["\n\n".join(p for p in paragraphs(essays) if len(p) > 80)]
    for entry in entries:
        title, *body = paragraphs(entry)
        # The pronunciation between slashes is not worth learning.
        title = re.sub(r"^:([^:]+): (/[^/]+/,? ?)*", r"\1, ", title).rstrip(", ")
        body = [line for line in body if "http" not in line and "─" not in line]
        if len(" ".join(body)) > 60:
            documents.append("\n\n".join([title, *body]))
    return documents


def wordnet(root: Path) -> list[str]:
    """Glosses with their example sentences, sixteen neighbouring entries a document."""
    names = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
    entries = []
    for part, label in names.items():
        for line in (root / f"usr/share/wordnet/data.{part}").read_text("utf-8").splitlines():
            if line.startswith(" ") or " | " not in line:
                continue
            head, gloss = line.split(" | ", 1)
            word = re.sub(r"\(.*\)", "", head.split()[4]).replace("_", " ")
            gloss = gloss.strip()
            # Examples make the entry readable; names and taxa are mostly lists of foreign words.
            if word.islower() and ('"' in gloss or part == "noun" and len(gloss) > 40):
                entries.append(f"{word} ({label}): {gloss}")
    return ["\n".join(entries[i : i + 16]) for i in range(0, len(entries), 16)]


def devil(root: Path) -> list[str]:
    """The Devil's Dictionary, one document an entry."""
    text = gzip.open(root / "usr/share/dictd/devil.dict.dz", "rt", encoding="latin-1").read()
    start = text.index("ABASEMENT, n.")
    documents = []
    for entry in re.split(r"\n\n(?=[A-Z][A-Z' -]{2,}[,.] )", text[start:]):
        blocks = re.split(r"\n\s*\n", entry)
        # Verse is indented and keeps its lines; prose is joined.
        lines = [
            b.rstrip() if b.startswith("    ") else re.sub(r"\s+", " ", b).strip() for b in blocks
        ]
        documents.append("\n\n".join(lines))
    return documents


READERS = {
    "kjv": king_james,
    "austen": austen,
    "jargon": jargon,
    "wordnet": wordnet,
    "devil": devil,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True, help="folder of .deb files")
    parser.add_argument("--out", type=Path, required=True, help="folder for the .jsonl files")
    parser.add_argument("--download", action="store_true", help="fetch the packages with apt-get")
    options = parser.parse_args()

    options.packages.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.download:
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=options.packages, check=True)
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            archives = sorted(options.packages.glob(f"{package}_*.deb"))
            if not archives:
                raise SystemExit(f"{options.packages}: no {package}_*.deb; use --download")
            subprocess.run(["dpkg", "-x", archives[-1], folder], check=True)
        for name, reader in READERS.items():
            documents = reader(Path(folder))
            with (options.out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for document in documents:
                    file.write(json.dumps(document, ensure_ascii=False) + "\n")
            size = sum(map(len, documents))
            print(f"{name}: {len(documents)} documents, {size / 1e6:.2f} M characters")


if __name__ == "__main__":
    main()
