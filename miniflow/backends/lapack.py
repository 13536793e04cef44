"""Factorizations of matrices by LAPACK, as NumPy calls it. Arrays of a GPU are copied to the host and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import KERNELS, kernel
from miniflow.errors import ArgumentError


def on_host(name: str, function: Callable) -> Callable:
    """The kernel, for any device, of the op of that name: a function of NumPy arrays and the op's attributes."""

    def run(out: Any, *arrays: Any, **attrs: Any) -> None:
        outs = out if isinstance(out, tuple) else (out,)
        try:
            results = function(*map(memory.to_host, arrays), **attrs)
        except np.linalg.LinAlgError as error:
            raise ArgumentError(f"{name}: got a matrix that has none: {error}; expected another one") from None
        for y, result in zip(outs, results if isinstance(out, tuple) else (results,), strict=True):
            memory.copy_into(y, memory.beside(y, np.ascontiguousarray(result, y.dtype).reshape(y.shape)))

    run.__name__ = name
    return run


for _name, _function in {
    "det": np.linalg.det,
    "slogdet": lambda A: np.linalg.slogdet(A)[::-1],
    "inv": np.linalg.inv,
    "solve": np.linalg.solve,
    "cholesky": np.linalg.cholesky,
    "eigh": np.linalg.eigh,
    "qr": np.linalg.qr,
    "svd": np.linalg.svd,
}.items():
    for _device in KERNELS:
        kernel(_device, half="native")(on_host(_name, _function))
