"""Decides which problems belong to the evaluation set alone."""

import hashlib

HELD_OUT_PERCENT = 10


def is_held_out(problem: str) -> bool:
    """True for a fixed tenth of all problems; the same problem is never trained on in any wording."""
    digest = hashlib.blake2b(problem.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 100 < HELD_OUT_PERCENT
