"""Matrix factorizations by NumPy's LAPACK. Arrays of a GPU are copied to the host and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import KERNELS, kernel
from miniflow.errors import ArgumentError


def on_host(name: str, function: Callable) -> Callable:
    """A kernel for any device that computes an op by a function of NumPy arrays, on the host."""

    def run(out: Any, *arrays: Any, **attrs: Any) -> None:
        outs = out if isinstance(out, tuple) else (out,)
        try:
            results = function(*map(memory.to_host, arrays), **attrs)
        except np.linalg.LinAlgError as error:
            raise ArgumentError(f"{name}: got a matrix that has none: {error}; expected another one") from None
        for y, result in zip(outs, results if isinstance(out, tuple) else (results,), strict=True):
            memory.copy_into(y, memory.from_host(y, np.ascontiguousarray(result, y.dtype).reshape(y.shape)))

    run.__name__ = name
    return run


def pinv(A: np.ndarray, atol: float | None, rtol: float | None) -> np.ndarray:
    """The pseudoinverse without singular values up to max(atol, rtol times the largest)."""
    U, S, Vh = np.linalg.svd(A, full_matrices=False)
    if rtol is None:
        rtol = max(A.shape[-2:]) * np.finfo(A.dtype).eps if atol is None else 0.0
    smallest = np.maximum(rtol * S.max(-1, keepdims=True, initial=0.0), atol or 0.0)
    inverse = np.where(S > smallest, 1 / np.where(S > smallest, S, 1), 0).astype(A.dtype)
    return (Vh.swapaxes(-1, -2) * inverse[..., None, :]) @ U.swapaxes(-1, -2)


for _name, _function in {
    "det": np.linalg.det,
    "slogdet": lambda A: np.linalg.slogdet(A)[::-1],
    "inv": np.linalg.inv,
    "solve": np.linalg.solve,
    "cholesky": np.linalg.cholesky,
    "eigh": np.linalg.eigh,
    "pinv": pinv,
    "qr": np.linalg.qr,
    "svd": np.linalg.svd,
}.items():
    for _device in KERNELS:
        kernel(_device, half="native")(on_host(_name, _function))
