"""The names that mean something inside kernels only: `cuda.grid`, `cuda.shared.array`, `cuda.atomic.add` ...

On the host they are markers: the compiler and the checked executor recognise them by identity of their `name`, however
the kernel's author spelled the way to them (`from ... import cuda as c`, `from ... import grid`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

AXES = ("x", "y", "z")
NAMES = """
    grid gridsize threadIdx blockIdx blockDim gridDim laneid warpsize
    syncthreads syncthreads_count syncthreads_and syncthreads_or syncwarp
    shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync
    vote_sync_intrinsic all_sync any_sync eq_sync ballot_sync match_any_sync match_all_sync activemask lanemask_lt
    threadfence threadfence_block threadfence_system nanosleep
    popc clz ffs brev fma cbrt selp rsqrt
    shared.array local.array const.array_like
    atomic.add atomic.sub atomic.max atomic.min atomic.nanmax atomic.nanmin atomic.and_ atomic.or_ atomic.xor
    atomic.inc atomic.dec atomic.exch atomic.cas atomic.compare_and_swap
    cg.this_grid
    ldca ldcg ldcs ldlu ldcv stcg stcs stwb stwt
""".split()
SCALARS = {
    "int8": "char", "int16": "short", "int32": "int", "int64": "longlong", "uint8": "uchar", "uint16": "ushort",
    "uint32": "uint", "uint64": "ulonglong", "float32": "float", "float64": "double",
}  # fmt: skip
VECTORS = {f"{scalar}x{n}": f"{short}{n}" for scalar, short in SCALARS.items() for n in (1, 2, 3, 4)}
"""The vector types, and CUDA's names for them."""


class Intrinsic:
    """A device-side name. Calling it on the host explains where it belongs."""

    def __init__(self, name: str):
        self.name = name
        if name in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
            for axis in AXES:
                setattr(self, axis, Intrinsic(f"{name}.{axis}"))

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"cuda.{self.name} works inside a kernel only: decorate the function with @cuda.jit")

    def __repr__(self) -> str:
        return f"cuda.{self.name}"


def _table() -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in NAMES:
        group, _, member = name.rpartition(".")
        if group:
            setattr(table.setdefault(group, SimpleNamespace()), member, Intrinsic(name))
        else:
            table[name] = Intrinsic(name)
    for name, short in VECTORS.items():
        table[name] = table[short] = table[short.replace("longlong", "long")] = Intrinsic(name)
    return table


INTRINSICS = _table()
"""Top-level name -> Intrinsic, or a namespace of them (`shared`, `local`, `const`, `atomic`, `cg`)."""
