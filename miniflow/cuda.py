"""`flow.cuda`: the CUDA devices, which may be emulated, their memory and their streams. As `torch.cuda`.

Without a usable GPU there are still devices: their memory is the computer's, and the host executor runs their kernels
on the CPU. They are for learning and testing, and slower than the cpu device: `is_available()` is False for them, so
that programs looking for speed stay on the CPU, and `is_emulated()` is True. MINIFLOW_DEVICES says how many there are,
MINIFLOW_DEVICE_MEMORY how many bytes each may use.

`from miniflow.hostcuda import cuda`, in contrast, is the language of kernels, `numba.cuda`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from miniflow import hostcuda
from miniflow.device import device as as_device
from miniflow.device import is_emulated
from miniflow.errors import DeviceError
from miniflow.ops.generator import default_generator

if TYPE_CHECKING:
    from miniflow.backends.cuda.allocator import Allocator
    from miniflow.backends.cuda.streams import Stream


# devices


def is_available() -> bool:
    """Whether a real GPU is usable; False where devices are only emulated.

    >>> import miniflow as flow
    >>> flow.cuda.is_available() != flow.cuda.is_emulated()
    True
    """
    return not is_emulated()


def device_count() -> int:
    """How many CUDA devices there are, emulated ones included."""
    try:
        return len(hostcuda.cuda.gpus)
    except RuntimeError as error:
        raise DeviceError(f"cuda.device_count: {error}") from error


def current_device() -> int:
    """The index of the current device of this thread, which `"cuda"` names."""
    return as_device("cuda").index


def set_device(device: Any) -> None:
    """Make another device the current one of this thread, which `"cuda"` names.

    Args:
        device: a number, a name such as "cuda:1", or a `flow.device`.

    Raises:
        DeviceError: for a device that does not exist.
    """
    hostcuda.cuda.select_device(_index(device))


class device:
    """Make another device the current one within a `with` block. As `torch.cuda.device`.

    >>> with device(0):
    ...     current_device()
    0
    """

    def __init__(self, device: Any):
        self.index = _index(device)
        self._previous: list[int] = []

    def __enter__(self) -> None:
        self._previous.append(current_device())
        set_device(self.index)

    def __exit__(self, *_: object) -> None:
        set_device(self._previous.pop())


def _index(device: Any) -> int:
    """The index of the device that an argument names; None is the current one."""
    resolved = as_device("cuda" if device is None else device)
    if resolved.type != "cuda":
        raise DeviceError(f"cuda: got device {str(resolved)!r}; expected a cuda device such as 'cuda:0'")
    return resolved.index


def get_device_name(device: Any = None) -> str:
    """The name of a device, the current one by default."""
    name = hostcuda.cuda.gpus[_index(device)].name
    return name.decode() if isinstance(name, bytes) else name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability (major, minor) of a device, the current one by default."""
    return tuple(hostcuda.cuda.gpus[_index(device)].compute_capability)


def synchronize(device: Any = None) -> None:
    """Wait until a device, the current one by default, has finished all work it was given.

    Raises:
        IndexRangeError: if an op since the last call got an index out of range, which a GPU reports late.
    """
    from miniflow.backends.cuda import faults

    with hostcuda.cuda.gpus[_index(device)]:
        hostcuda.cuda.synchronize()
    faults.check(_index(device))


def manual_seed(seed: int) -> None:
    """Seed the default generator, whose numbers are the same on all devices: as `flow.manual_seed`."""
    default_generator.manual_seed(seed)


manual_seed_all = manual_seed


# memory


def _allocator(device: Any) -> Allocator:
    from miniflow.backends.cuda.allocator import allocator

    return allocator(_index(device))


def memory_stats(device: Any = None) -> dict[str, int]:
    """The allocator's counts: `f"{quantity}.all.{kind}"` and the numbers of retries and failures.

    Quantities: "allocation" (blocks in use) and "segment" (blocks in use or cached), "allocated_bytes" (in use, rounded
    up), "requested_bytes" (in use, as asked for), "reserved_bytes" (in use or cached, rounded up). Kinds:
    "current", "peak", and over all time "allocated" and "freed".
    """
    return _allocator(device).stats()


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors on a device."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use at a time, since the start or `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds: in use and cached."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the allocator held at a time, since the start or `reset_peak_memory_stats`."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peaks to what is in use now."""
    _allocator(device).reset_peak()


def empty_cache() -> None:
    """Release the cached memory that no tensor uses, on all devices."""
    for index in range(device_count()):
        _allocator(index).empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a device. An emulated one has MINIFLOW_DEVICE_MEMORY, else what the computer has."""
    allocator = _allocator(device)
    if allocator.limit is not None:
        return allocator.limit - memory_reserved(device), allocator.limit
    with hostcuda.cuda.gpus[allocator.device_index]:
        free, total = hostcuda.cuda.current_context().get_memory_info()
    return (free - memory_reserved(device) if is_emulated() else free), total


def memory_summary(device: Any = None) -> str:
    """A table of the allocator's counts, to be printed."""
    from miniflow.backends.cuda.allocator import readable

    stats, index = memory_stats(device), _index(device)
    lines = [f"cuda:{index}{' (emulated)' if is_emulated() else ''}: {get_device_name(index)}"]
    lines.append(f"{'':18}{'now':>12}{'peak':>12}{'in all':>12}{'freed':>12}")
    for name in ("allocated_bytes", "requested_bytes", "reserved_bytes", "allocation", "segment"):
        write = readable if name.endswith("bytes") else str
        numbers = [write(stats[f"{name}.all.{kind}"]) for kind in ("current", "peak", "allocated", "freed")]
        lines.append(f"{name.replace('_', ' '):18}" + "".join(f"{number:>12}" for number in numbers))
    return "\n".join(lines)


# streams


def current_stream(device: Any = None) -> Stream:
    """The stream into which this thread puts its work on a device."""
    from miniflow.backends.cuda import streams

    return streams.current(_index(device))


def default_stream(device: Any = None) -> Stream:
    """The stream of a device that is current until another one is made current."""
    from miniflow.backends.cuda import streams

    return streams.default(_index(device))
