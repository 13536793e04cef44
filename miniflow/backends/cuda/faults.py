"""Indices out of range, found on the device and reported when the host next waits for it.

To read an index tensor before every launch, the host would have to wait for the GPU at every lookup. So the ops look at
the values only where that is free: on the CPU, and where the device is emulated. On a GPU `watch` launches a kernel
that looks instead. Kernels leave out what lies outside, and the number of a message ends up in one cell of the
device's memory; whoever next copies from the device reads the cell too and raises. Until then results are worthless,
but no memory is overwritten.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, at_next_copy, full
from miniflow.backends.cuda.launch import each
from miniflow.errors import IndexRangeError
from miniflow.kernels.gather import report_outside

_cells: dict[int, DeviceArray] = {}
_messages: list[str] = []  # message number n stands at n - 1


def watch(op: str, index: DeviceArray, low: int, high: int) -> None:
    """Let the device check that all values of a contiguous index are in [low, high), if the ops could not."""
    if index.size and index.peek() is None:
        report(op, index, low, high)


def report(op: str, index: DeviceArray, low: int, high: int) -> None:
    """Let the device check that all values of a contiguous index are in [low, high)."""
    message = f"{op}: an earlier call had an index outside the range from {low} to {high - 1}"
    if message not in _messages:
        _messages.append(message)
    cell = _cells.get(index.device_index)
    if cell is None:
        cell = _cells[index.device_index] = full((1,), 0, np.int64, index.device_index)
    at_next_copy[index.device_index] = check
    each(report_outside, index.size, index.reshape(-1), low, high, _messages.index(message) + 1, cell)


def check(device_index: int) -> None:
    """Raise what was found on a device since the last check; the host waits for the current stream.

    Raises:
        IndexRangeError: for an index out of range.
    """
    cell = _cells.get(device_index)
    number = 0 if cell is None else int(cell.item())
    if number:
        _cells[device_index] = full((1,), 0, np.int64, device_index)
        raise IndexRangeError(
            f"{_messages[number - 1]}; a GPU reports it late: run on the CPU, or set MINIFLOW_CUDA=host, to see where"
        )
