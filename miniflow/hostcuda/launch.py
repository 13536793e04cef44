"""A launch configuration: `kernel[grid, block, stream, shared]` is checked once, then called many times."""

from __future__ import annotations

import math
from numbers import Integral
from typing import TYPE_CHECKING, Any

from miniflow.hostcuda import devices
from miniflow.hostcuda.arguments import Arguments, cast
from miniflow.hostcuda.devices import LIMITS, MAX_BLOCK, MAX_THREADS, Stream
from miniflow.hostcuda.errors import CudaDeviceError, KernelArgumentError, KernelLaunchError

if TYPE_CHECKING:
    from miniflow.hostcuda.kernel import Kernel

MAX_GRID = tuple(LIMITS[f"MAX_GRID_DIM_{axis}"] for axis in "XYZ")
MAX_SHARED = LIMITS["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
MAX_LOCAL = 512 * 1024
TOO_MUCH = {
    "threads": "a block of {:,} threads; at most {:,}, make the grid larger",
    "dynamic": "{:,} bytes of dynamic shared memory; a block has at most {:,} (227 KB)",
    "local": "{:,} bytes of local arrays; a thread has at most {:,} (512 KB): use a smaller array, or global memory",
    "const": "{:,} bytes of const arrays; a kernel has at most {:,} (64 KB): pass the array as an argument",
    "static": "{:,} bytes of shared arrays; at most {:,} (48 KB) have a fixed size: write cuda.shared.array(0, dtype) "
    "and kernel[grid, block, stream, bytes]",
    "shared": "{:,} bytes of shared arrays and dynamic shared memory; a block has at most {:,} (227 KB)",
    "blocks": "a grid of {:,} blocks, which wait for each other; a GPU runs {:,} of them at once: loop in each block "
    "over its share of the work",
}


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
        self.stream = stream_of(stream, name)
        self.sharedmem = integer(sharedmem, f"{name}: bytes of dynamic shared memory are an integer, got {sharedmem!r}")
        if self.sharedmem < 0:
            raise KernelLaunchError(f"{name}: {sharedmem} bytes of dynamic shared memory")
        refuse(name, threads=(math.prod(self.blockdim), MAX_THREADS), dynamic=(self.sharedmem, MAX_SHARED))
        self.rank = devices.rank_of(self.blockdim)
        self._ready: dict[tuple, tuple] = {}  # kinds of arguments -> the compiled kernel, and casts

    def __call__(self, *arguments: Any) -> None:
        """Run the kernel on arguments as numba.cuda takes them; all is done when the call returns."""
        kernel = self.kernel
        checked = kernel.watched
        launched = Arguments(arguments, checked)
        if self.stream is not None and self.stream.device != launched.device:
            raise CudaDeviceError(f"{kernel.__name__}: {self.stream!r} used while device {launched.device} is current")
        if checked:
            from miniflow.hostcuda import check, profile

            kernel.profile = profile.Profile() if kernel.options["profile"] else None
            return check.run(self, launched, kernel.profile)
        compiled, casts = self._ready.get(launched.kinds) or self._prepared(launched)
        values = launched.values if casts is None else cast(launched.values, casts)
        compiled.run(values, self.griddim, self.blockdim, self.sharedmem)
        if launched.copies_back:
            launched.write_back()
        return None

    def _prepared(self, launched: Arguments) -> tuple:
        """The compiled kernel, and casts, for arguments of these kinds; refused if no GPU has the memory for it."""
        types, casts = self.kernel.types_for(launched.kinds)
        negative = any(isinstance(v, Integral) and v < 0 for v in launched.values)
        compiled = self.kernel.compiled_for(types, self.blockdim, natural=not negative)
        self.check_resources(compiled)
        self._ready[launched.kinds] = compiled, casts
        return compiled, casts

    def check_resources(self, compiled: Any) -> None:
        """Refuse a kernel that needs more memory, or more blocks at once, than a GPU has."""
        static, dynamic = compiled.shared_bytes, self.sharedmem
        name, blocks = self.kernel.__name__, math.prod(self.griddim) if compiled.cooperative else 0
        refuse(name, local=(compiled.local_bytes, MAX_LOCAL))
        refuse(name, const=(compiled.const_bytes, LIMITS["TOTAL_CONSTANT_MEMORY"]))
        refuse(name, static=(static, LIMITS["MAX_SHARED_MEMORY_PER_BLOCK"]), shared=(static + dynamic, MAX_SHARED))
        refuse(name, blocks=(blocks, devices.resident_blocks(math.prod(self.blockdim), static + dynamic)))

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__}[{self.griddim}, {self.blockdim}, {self.stream or 0}, {self.sharedmem}]>"


def refuse(name: str, **needed: tuple[int, int]) -> None:
    """Refuse what is larger than it may be."""
    for resource, (size, most) in needed.items():
        if size > most:
            raise KernelLaunchError(f"{name}: {TOO_MUCH[resource].format(size, most)}")


def dimensions(value: Any, what: str, limits: tuple[int, ...], name: str) -> tuple[int, int, int]:
    """One to three sizes as three, checked against the hardware's limits."""
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise KernelLaunchError(f"{name}: the {what} has 1, 2 or 3 dimensions, got {value!r}")
    three = [
        integer(size, f"{name}: the sizes of a {what} are integers (divide with //), got {value!r}") for size in sizes
    ]
    three += [1] * (3 - len(sizes))
    for axis, size, limit in zip("xyz", three, limits, strict=True):
        if not 1 <= size <= limit:
            raise KernelLaunchError(f"{name}: the {what} has {size} in {axis}, got {value!r}; expected 1 to {limit:,}")
    return tuple(three)


def integer(value: Any, refusal: str) -> int:
    """An integer of Python or NumPy as one of Python."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise KernelArgumentError(refusal)
    return value.__index__()


def stream_of(stream: Any, name: str) -> Stream | None:
    """None for the default stream, which is written 0 (or None)."""
    if not stream:
        return None
    if not isinstance(stream, Stream):
        raise KernelArgumentError(
            f"{name}[grid, block, stream, ...]: expected a stream or 0 for the third, got {stream!r}"
        )
    return stream if stream.handle else None
