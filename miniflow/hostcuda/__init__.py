"""CUDA kernels without a GPU: `from miniflow.hostcuda import cuda`, then write `numba.cuda` kernels as always.

`cuda` is `numba.cuda` itself where a GPU is usable, numba's simulator under NUMBA_ENABLE_CUDASIM=1, and else the host
executor (`host`), which compiles kernels for the CPU and can check them for races. `MINIFLOW_CUDA=gpu|host|simulator`
forces one. This package imports nothing else of miniflow.
"""

from __future__ import annotations

from typing import Any

from miniflow.hostcuda import errors
from miniflow.hostcuda.errors import *  # noqa: F403

__all__ = ["cuda", "show", *errors.__all__]  # noqa: F405


def __getattr__(name: str) -> Any:
    """`cuda` is chosen, and matplotlib loaded for `show`, when first asked for."""
    if name == "cuda":
        from miniflow.hostcuda.choice import choose

        value = choose()
    elif name == "show":
        from miniflow.hostcuda.picture import show as value
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
