"""What both kinds of communicators need: counts of bytes, and sums that do not depend on the number of processes."""

from __future__ import annotations

import enum
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import POINTWISE


class Counted:
    """What a communicator has sent.

    Attributes:
        bytes: collective -> bytes that the ranks of this process have sent to others by it.
        calls: collective -> how often it ran.
    """

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, name: str, sent: int) -> None:
        """Count one call."""
        with self._lock:
            self.bytes[name] = self.bytes.get(name, 0) + sent
            self.calls[name] = self.calls.get(name, 0) + 1


class ReduceOp(enum.Enum):
    """How the values of several ranks become one. As `torch.distributed.ReduceOp`; AVG is of floating dtypes only,
    BAND, BOR and BXOR of integers and bool."""

    SUM = "add"
    AVG = "mean"
    PRODUCT = "mul"
    MIN = "minimum"
    MAX = "maximum"
    BAND = "bitwise_and"
    BOR = "bitwise_or"
    BXOR = "bitwise_xor"


UFUNCS = {
    "add": np.add, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum, "hypot": np.hypot,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip


def reduced(parts: Sequence[Any], out: Any = None, by: str = "add") -> Any:
    """The sum in the order of the ranks, half precision in float32: so no bit depends on who computes it.

    Args:
        by: a key of `UFUNCS`, which is used instead of the sum.
    """
    out = memory.empty_like(parts[0], parts[0].shape) if out is None else out
    half = out.dtype.itemsize == 2 and out.dtype.kind not in "iu"
    total = memory.empty_like(out, out.shape, np.float32) if half else out
    total[...] = parts[0]
    for x in parts[1:]:
        x = x.astype(np.float32) if half else x
        if memory.is_host(total):
            UFUNCS[by](total, x, out=total)
        elif total.size:
            POINTWISE["cuda"](by).run(total, total, x)
    if half:
        out[...] = total
    return out


def parts_of(size: int, ranks: int) -> list[int]:
    """The elements of each of `ranks` parts, as even as possible."""
    quotient, remainder = divmod(size, ranks)
    return [quotient + (i < remainder) for i in range(ranks)]


def cut(flat: Any, counts: Sequence[int]) -> list[Any]:
    """Views of a flat array, so many elements each."""
    return [flat[end - n : end] for n, end in zip(counts, itertools.accumulate(counts), strict=True)]
