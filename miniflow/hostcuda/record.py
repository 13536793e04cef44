"""A single record, of a structured dtype, on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.hostcuda.allocation import Allocation
from miniflow.hostcuda.errors import DeviceArrayError
from miniflow.hostcuda.memory import DeviceMemory, DeviceNDArray


class DeviceRecord(DeviceMemory):
    """One record on a device: `record["field"]` reads a field (a transfer), `record["field"] = value` writes one."""

    __slots__ = ()

    def __init__(self, dtype: Any, stream: Any = 0, gpu_data: Allocation | None = None):
        dtype = np.dtype(dtype)
        self.allocation = gpu_data or Allocation.new(dtype.itemsize)
        self.host = np.ndarray((), dtype, self.allocation.buffer)
        self.stream = stream
        self._kind = None

    def __getitem__(self, item: str) -> Any:
        return self.getitem(item)

    def getitem(self, item: str, stream: Any = 0) -> Any:
        """A host scalar, a `DeviceRecord` for a nested record, or a `DeviceNDArray` for a field that is an array."""
        self._check_field(item)
        found = self.host[item]
        if found.ndim:
            return DeviceNDArray.over(found, self.allocation, stream or self.stream)
        if found.dtype.names is not None:
            return DeviceRecord.over(found, self.allocation, stream or self.stream)
        return found.copy()[()]

    def __setitem__(self, key: str, value: Any) -> None:
        self.setitem(key, value)

    def setitem(self, key: str, value: Any, stream: Any = 0) -> None:
        """Write a field."""
        self._check_field(key)
        target = self.host[key]
        target[...] = value
        self.allocation.mark_written(target)

    def _check_field(self, item: Any) -> None:
        names = self.dtype.names or ()
        if item not in names:
            raise DeviceArrayError(f"the record has no field {item!r}; its fields are {', '.join(names)}")
