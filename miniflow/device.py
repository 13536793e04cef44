"""Where a tensor's memory lives: on the CPU, or on one of the CUDA devices, which may be emulated."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from miniflow import hostcuda
from miniflow.errors import DeviceError
from miniflow.hostcuda import choice


class Place:
    """Where a tensor is: a device, or the ranks of a placement."""

    __slots__ = ()
    is_global = False  # whether it is a placement


class device(Place):
    """A device such as `flow.device("cpu")` or `flow.device("cuda:1")`: a `type` and an `index`.

    Args:
        name: "cpu", "cuda" (the current CUDA device), "cuda:1", the number of a CUDA device, or a device.
        index: the number, if `name` does not hold it.

    Where no GPU is usable, CUDA devices exist too: they are emulated, and `repr` says so. MINIFLOW_DEVICES says how
    many.

    >>> device("cpu").type
    'cpu'

    Raises:
        DeviceError: for a device that does not exist.
    """

    __slots__ = ("type", "index")

    def __init__(self, name: str | int | device, index: int | None = None):
        if isinstance(name, device):
            self.type, self.index = name.type, name.index
            return
        text = f"cuda:{name}" if isinstance(name, int) else str(name)
        full_name = text if index is None else f"{text}:{index}"
        match = re.fullmatch(r"cpu(:0)?|cuda(:(?P<index>\d+))?", full_name)
        if match is None:
            raise DeviceError(f"device {full_name!r} does not exist; expected 'cpu', 'cuda' or 'cuda:0'")
        self.type = full_name.partition(":")[0]
        number = match["index"]
        self.index = 0 if self.type == "cpu" else _cuda_index(full_name, None if number is None else int(number))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        emulated = ", emulated" if self.type == "cuda" and is_emulated() else ""
        return f"device(type={self.type!r}, index={self.index}{emulated})"

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"


def _cuda_index(name: str, index: int | None) -> int:
    try:
        count = len(hostcuda.cuda.gpus)
        if index is None:
            return choice.current_device()
    except RuntimeError as error:  # no working driver, or an impossible MINIFLOW_DEVICES
        raise DeviceError(f"device {name!r} does not exist: {error}") from error
    if not 0 <= index < count:
        are = "is 1 CUDA device" if count == 1 else f"are {count} CUDA devices"
        remedy = "set MINIFLOW_DEVICES before Python starts to emulate more" if is_emulated() else "use one of these"
        raise DeviceError(f"device {name!r} does not exist: there {are}, counted from 0; {remedy}")
    return index


@functools.cache
def is_emulated() -> bool:
    """Whether CUDA devices are emulated on the CPU, since no GPU is usable."""
    return hostcuda.cuda.__name__ == "miniflow.hostcuda.host" or choice.simulator_asked_for()


CPU = device("cpu")


@functools.cache
def cuda_device(index: int) -> device:
    """The CUDA device of that number."""
    return device("cuda", index)


def of_array(array: Any) -> device:
    """The device that holds an array."""
    if isinstance(array, np.ndarray):
        return CPU
    if array.device_index is None:  # of a global array, or one that a graph records
        return getattr(array, "placement", CPU)
    return cuda_device(array.device_index)


def place_of(array: Any) -> Any:
    """Where an array is: its device; of a global array a `GlobalMeta`, which has its placement and its SBP."""
    return array.meta if hasattr(array, "meta") else of_array(array)


_default = CPU


def set_default_device(name: str | int | device | None) -> None:
    """Set the device on which factories without `device=` make their tensors; None means the CPU.

    `from_numpy`, `from_dlpack` and the data sets stay on the CPU. The setting is one for all threads.

    >>> set_default_device("cpu")

    Source: `torch.set_default_device`.
    """
    global _default
    default = CPU if name is None else device(name)
    _default = CPU if default.type == "cpu" else cuda_device(default.index)


def get_default_device() -> device:
    """The device on which factories without `device=` make their tensors. As `torch.get_default_device`."""
    return _default


def chosen(name: str | int | device | None) -> device:
    """The device that an argument `device=` names; the default one for None."""
    if name is None:
        return _default
    return name if isinstance(name, Place) else device(name)


def by_device(tensors: list[Any]) -> list[list[Any]]:
    """Tensors grouped by device."""
    if all([type(x._array) is np.ndarray for x in tensors]):  # the fast path
        return [tensors] if tensors else []
    groups: dict[device, list[Any]] = {}
    for x in tensors:
        groups.setdefault(x._device, []).append(x)
    return list(groups.values())
