"""Strings: NumPy arrays of objects, on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miniflow.onnx.loader.registry import Array, choice, operator

CASES = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@operator("StringConcat")
def string_concat(x: Array, y: Array) -> np.ndarray:
    return np.asarray(x + y, object)


@operator("StringNormalizer")
def string_normalizer(
    x: Array, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, stopwords: Sequence[str] = ()
) -> np.ndarray:
    """Strings but for the stop words, in another case; one empty string if none is left."""
    key = str if is_case_sensitive else str.lower
    change = choice("case_change_action", case_change_action, CASES)
    stop = {key(word) for word in stopwords}
    kept = [change(text) for text in x.ravel() if key(text) not in stop] or [""]
    return np.array(kept, object).reshape(*x.shape[:-1], -1)


@operator("StringSplit")
def string_split(x: Array, *, delimiter: str = "", maxsplit: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """The parts of each string along a new last dim, filled up with empty strings, and how many there are."""
    parts = [text.split(delimiter or None, maxsplit) for text in x.ravel()]
    counts = np.array([len(one) for one in parts], np.int64)
    width = max(counts, default=0)
    filled = np.array([one + [""] * (width - len(one)) for one in parts], object)
    return filled.reshape(*x.shape, width), counts.reshape(x.shape)
