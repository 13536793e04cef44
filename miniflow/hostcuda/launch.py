"""A launch configuration: `kernel[grid, block, stream, shared]` is checked once, then called many times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from miniflow.hostcuda.arguments import Arguments, cast
from miniflow.hostcuda.devices import (
    LIMITS,
    MAX_BLOCK,
    MAX_STATIC_SHARED,
    MAX_THREADS,
    Stream,
    rank_of,
    resident_blocks,
)
from miniflow.hostcuda.errors import CudaDeviceError, KernelArgumentError, KernelLaunchError

if TYPE_CHECKING:
    from miniflow.hostcuda.kernel import Kernel

MAX_GRID = tuple(LIMITS[f"MAX_GRID_DIM_{axis}"] for axis in "XYZ")
MAX_SHARED = LIMITS["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
MAX_CONST, MAX_LOCAL = LIMITS["TOTAL_CONSTANT_MEMORY"], 512 * 1024


class Launch:
    """A kernel with its grid, block, stream and bytes of dynamic shared memory; calling it runs the kernel.

    Raises:
        KernelLaunchError: if no GPU of compute capability 9.0 could launch it.
    """

    def __init__(self, kernel: Kernel, grid: Any, block: Any, stream: Any = 0, sharedmem: Any = 0):
        name = kernel.__name__
        self.kernel = kernel
        self.griddim = dimensions(grid, "grid", MAX_GRID, name)
        self.blockdim = dimensions(block, "block", MAX_BLOCK, name)
        threads = math.prod(self.blockdim)
        if threads > MAX_THREADS:
            raise KernelLaunchError(
                f"{name}: block {self.blockdim} has {threads} threads; at most {MAX_THREADS:,}, make the grid larger"
            )
        self.stream = stream_of(stream, name)
        self.sharedmem = integer(
            sharedmem, f"{name}: the bytes of dynamic shared memory are an integer, got {sharedmem!r}"
        )
        if not 0 <= self.sharedmem <= MAX_SHARED:
            raise KernelLaunchError(
                f"{name}: {sharedmem:,} bytes of dynamic shared memory; a block has at most {MAX_SHARED:,} (227 KB)"
            )
        bounds = kernel.options.get("launch_bounds")
        most = bounds[0] if isinstance(bounds, tuple) else bounds
        if most is not None and threads > most:
            raise KernelLaunchError(f"{name}: a block of {threads} threads, but launch_bounds={bounds!r} allows {most}")
        self.rank = rank_of(self.blockdim)
        self._ready: dict[tuple, tuple] = {}  # kinds of arguments -> the compiled kernel, and casts

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run the kernel on arguments as numba.cuda takes them; all is done when the call returns."""
        kernel = self.kernel
        if named:
            raise KernelArgumentError(f"{kernel.__name__}: kernels take no named arguments, got {', '.join(named)}")
        checked = kernel.watched
        given = Arguments(arguments, checked)
        if self.stream is not None and self.stream.device != given.here:
            raise CudaDeviceError(f"{kernel.__name__}: {self.stream!r} used while device {given.here} is current")
        if checked:
            from miniflow.hostcuda import check, profile

            kernel.profile = profile.Profile() if kernel.options["profile"] else None
            return check.run(self, given, kernel.profile)
        compiled, casts = self._ready.get(given.kinds) or self._prepared(given.kinds)
        values = given.values if casts is None else cast(given.values, casts)
        compiled.run(values, self.griddim, self.blockdim, self.sharedmem)
        if given.back:
            given.write_back()
        return None

    def _prepared(self, kinds: tuple) -> tuple:
        """What runs for arguments of these kinds, if the hardware has the memory and the blocks for it."""
        types, casts = self.kernel.types_for(kinds)
        compiled = self.kernel.compiled_for(types, self.rank)
        self.check_resources(compiled)
        self._ready[kinds] = compiled, casts
        return compiled, casts

    def check_resources(self, compiled: Any) -> None:
        """Refuse a kernel that needs more memory, or more blocks at once, than a GPU has."""
        name, static = self.kernel.__name__, getattr(compiled, "shared_bytes", 0)
        for what, most, remedy in (
            ("local", MAX_LOCAL, "a thread has at most {:,} (512 KB): use a smaller array, or one in global memory"),
            ("const", MAX_CONST, "a kernel has at most {:,} (64 KB): pass the array as an argument"),
        ):
            size = getattr(compiled, f"{what}_bytes", 0)
            if size > most:
                raise KernelLaunchError(f"{name}: {size:,} bytes of {what} arrays; {remedy.format(most)}")
        if static > MAX_STATIC_SHARED:
            raise KernelLaunchError(
                f"{name}: {static:,} bytes of shared arrays; at most {MAX_STATIC_SHARED:,} (48 KB) have a fixed size: "
                f"write cuda.shared.array(0, dtype) and {name}[grid, block, stream, bytes]"
            )
        if static + self.sharedmem > MAX_SHARED:
            raise KernelLaunchError(
                f"{name}: {static:,} bytes of shared arrays and {self.sharedmem:,} of dynamic shared memory; a block "
                f"has at most {MAX_SHARED:,} (227 KB)"
            )
        blocks, most = math.prod(self.griddim), resident_blocks(math.prod(self.blockdim), static + self.sharedmem)
        if getattr(compiled, "cooperative", False) and blocks > most:
            raise KernelLaunchError(
                f"{name}: a grid of {blocks:,} blocks, which wait for each other; a GPU runs {most:,} of them at once: "
                "loop in each block over its share of the work"
            )

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__}[{self.griddim}, {self.blockdim}, {self.stream or 0}, {self.sharedmem}]>"


def dimensions(value: Any, what: str, limits: tuple[int, ...], name: str) -> tuple[int, int, int]:
    """One to three sizes as three, checked against the hardware's limits."""
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise KernelLaunchError(f"{name}: the {what} has 1, 2 or 3 dimensions, got {value!r}")
    found = [
        integer(size, f"{name}: the sizes of a {what} are integers (divide with //), got {value!r}") for size in sizes
    ]
    found += [1] * (3 - len(sizes))
    for axis, size, limit in zip("xyz", found, limits, strict=True):
        if not 1 <= size <= limit:
            raise KernelLaunchError(f"{name}: the {what} has {size} in {axis}, got {value!r}; expected 1 to {limit:,}")
    return tuple(found)


def integer(value: Any, refusal: str) -> int:
    """An integer of Python or NumPy as one of Python."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise KernelArgumentError(refusal)
    return value.__index__()


def stream_of(stream: Any, name: str) -> Stream | None:
    """None for the default stream, which is written 0 (or None)."""
    if stream is None or stream.__class__ is int and stream == 0:
        return None
    if not isinstance(stream, Stream):
        raise KernelArgumentError(
            f"{name}[grid, block, stream, ...]: expected a stream or 0 for the third, got {stream!r}"
        )
    return stream if stream.handle else None
