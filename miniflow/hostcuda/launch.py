"""A launch configuration: `kernel[grid, block, stream, shared]` is checked once, then called many times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from miniflow.hostcuda import devices
from miniflow.hostcuda.arguments import INT64, INT64_MAX, INT64_MIN, SCALARS, Kind, array_kind, convert_other
from miniflow.hostcuda.errors import CudaDeviceError, KernelArgumentError, KernelLaunchError
from miniflow.hostcuda.memory import DeviceNDArray
from miniflow.hostcuda.streams import Stream
from miniflow.hostcuda.transfers import HostArrays

if TYPE_CHECKING:
    from miniflow.hostcuda.kernel import Kernel

LIMITS = devices.LIMITS
MAX_THREADS = LIMITS["MAX_THREADS_PER_BLOCK"]
MAX_BLOCK = tuple(LIMITS[f"MAX_BLOCK_DIM_{axis}"] for axis in "XYZ")
MAX_GRID = tuple(LIMITS[f"MAX_GRID_DIM_{axis}"] for axis in "XYZ")
MAX_DYNAMIC_SHARED = LIMITS["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
THREADS_OF_FORALL = 256


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
        threads = self.blockdim[0] * self.blockdim[1] * self.blockdim[2]
        if threads > MAX_THREADS:
            raise KernelLaunchError(
                f"{name}: block {self.blockdim} has {threads} threads; at most {MAX_THREADS:,}, make the grid larger"
            )
        self.stream = stream_of(stream, name)
        self.sharedmem = shared_bytes(sharedmem, name)
        check_bounds(threads, kernel.options.get("launch_bounds"), name)
        self.rank = 1 if self.blockdim[1] == self.blockdim[2] == 1 else 3
        self._variants = kernel.variants[self.rank]

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run the kernel on arguments as numba.cuda takes them; all is done when the call returns."""
        kernel = self.kernel
        if named:
            raise KernelArgumentError(f"{kernel.__name__}: kernels take no named arguments, got {', '.join(named)}")
        here = devices.current.index
        if self.stream is not None and self.stream.device != here:
            raise CudaDeviceError(f"{kernel.__name__}: {self.stream!r} used while device {here} is current")
        if kernel.watched:
            return kernel.run_watched(self, arguments)
        kinds, values, hosts = convert(arguments, here)
        variant = self._variants.get(kinds)
        if variant is None:
            variant = kernel.variant(kinds, self.rank)
        if variant.casts is not None:
            values = variant.casts(values)
        variant.compiled.run(values, self.griddim, self.blockdim, self.sharedmem)
        if hosts is not None:
            hosts.write_back()
        return None

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__}[{self.griddim}, {self.blockdim}, {self.stream or 0}, {self.sharedmem}]>"


def convert(arguments: tuple, here: int) -> tuple[tuple[Kind, ...], list[Any], HostArrays | None]:
    """Kinds and values of a launch's arguments on device `here`; device arrays and numbers the short way."""
    kinds: list[Kind] = []
    values: list[Any] = []
    hosts = None
    for argument in arguments:
        cls = argument.__class__
        if cls is DeviceNDArray and argument.allocation.device == here:
            argument.allocation.initialised = True  # the kernel may write it all; only the checked executor knows
            kind = argument._kind
            if kind is None:
                kind = argument._kind = array_kind(argument.host)
            value = argument.host
        elif cls is int and INT64_MIN <= argument <= INT64_MAX:
            kind, value = INT64, argument
        elif cls in SCALARS:
            kind, value = SCALARS[cls], argument
        else:
            hosts = hosts or HostArrays(checked=False)
            kind, value = convert_other(argument, len(kinds), hosts)
        kinds.append(kind)
        values.append(value)
    return tuple(kinds), values, hosts


class ForAll:
    """`kernel.forall(n)`: a 1-D launch with at least one thread for each of n tasks."""

    def __init__(self, kernel: Kernel, ntasks: int, tpb: int, stream: Any, sharedmem: int):
        if ntasks < 0:
            raise KernelLaunchError(f"{kernel.__name__}.forall({ntasks}): the number of tasks is negative")
        self.kernel, self.ntasks, self.stream, self.sharedmem = kernel, ntasks, stream, sharedmem
        self.thread_per_block = tpb

    def __call__(self, *arguments: Any) -> None:
        """Run it; no tasks, no launch."""
        if self.ntasks:
            block = self.thread_per_block or THREADS_OF_FORALL
            self.kernel[-(-self.ntasks // block), block, self.stream, self.sharedmem](*arguments)


def dimensions(value: Any, what: str, limits: tuple[int, ...], name: str) -> tuple[int, int, int]:
    """One to three sizes as three, checked against the hardware's limits."""
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise KernelLaunchError(f"{name}: the {what} has 1, 2 or 3 dimensions, got {value!r}")
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise KernelArgumentError(f"{name}: the sizes of a {what} are integers (divide with //), got {value!r}")
    found = tuple(size.__index__() for size in sizes) + (1,) * (3 - len(sizes))
    for axis, size, limit in zip("xyz", found, limits, strict=True):
        if not 1 <= size <= limit:
            raise KernelLaunchError(f"{name}: the {what} has {size} in {axis}, got {value!r}; expected 1 to {limit:,}")
    return found


def check_bounds(threads: int, bounds: Any, name: str) -> None:
    """Refuse more threads a block than `@cuda.jit(launch_bounds=...)` promises."""
    most = bounds[0] if isinstance(bounds, tuple) else bounds
    if most is not None and threads > most:
        raise KernelLaunchError(f"{name}: a block of {threads} threads, but launch_bounds={bounds!r} allows {most}")


def stream_of(stream: Any, name: str) -> Stream | None:
    """None for the default stream, which is written 0 (or None)."""
    if stream is None or (isinstance(stream, int) and stream == 0):
        return None
    if not isinstance(stream, Stream):
        raise KernelArgumentError(
            f"{name}[grid, block, stream, ...]: expected a stream or 0 for the third, got {stream!r}"
        )
    return stream if stream.handle else None


def shared_bytes(value: Any, name: str) -> int:
    """Bytes of dynamic shared memory."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise KernelArgumentError(f"{name}: the bytes of dynamic shared memory are an integer, got {value!r}")
    found = value.__index__()
    if not 0 <= found <= MAX_DYNAMIC_SHARED:
        raise KernelLaunchError(
            f"{name}: {found:,} bytes of dynamic shared memory; a block has at most {MAX_DYNAMIC_SHARED:,} (227 KB)"
        )
    return found
