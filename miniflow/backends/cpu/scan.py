"""Scans, by NumPy's `accumulate`; float32 is accumulated in float64, since rounding errors add up."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import kernel


def by_numpy(name: str, ufunc: np.ufunc) -> None:
    """Register the kernel of a scan with a ufunc."""

    def run(y: np.ndarray, x: np.ndarray, *, dim: int, reverse: bool) -> None:
        if reverse:
            x, y = np.flip(x, dim), np.flip(y, dim)
        if y.dtype == np.float32 and ufunc not in (np.maximum, np.minimum):
            y[...] = ufunc.accumulate(x, dim, dtype=np.float64)
        else:
            ufunc.accumulate(x, dim, out=y)

    run.__name__ = name
    kernel("cpu")(run)


for name, ufunc in {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cumulative_max": np.maximum,
    "cumulative_min": np.minimum,
    "logcumsumexp": np.logaddexp,
}.items():
    by_numpy(name, ufunc)
