"""Philox 4x32-10 a second time, in Python integers: what the compiled one is held against."""

from __future__ import annotations

import numpy as np


def philox_reference(counter: list[int], key: list[int]) -> list[int]:
    """The paper's rounds in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def words_reference(seed: int, offset: int, blocks: int, first: int = 0) -> np.ndarray:
    """The words of a draw, shape (blocks, 4)."""
    split = [[x % 2**32, x >> 32] for x in (offset, seed)]
    rows = [philox_reference([i % 2**32, i >> 32, *split[0]], split[1]) for i in range(first, first + blocks)]
    return np.array(rows, np.uint64).reshape(blocks, 4)
