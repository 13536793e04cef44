"""Where a tensor's memory lives."""

from __future__ import annotations

from miniflow.errors import DeviceError


class device:
    """A device such as `flow.device("cpu")`: a `type` and an `index`.

    >>> device("cpu").type
    'cpu'

    Raises:
        DeviceError: for a device that this installation does not have.
    """

    __slots__ = ("type", "index")

    def __init__(self, name: str | device, index: int | None = None):
        if isinstance(name, device):
            name, index = name.type, name.index
        kind, _, number = str(name).partition(":")
        if kind != "cpu":
            raise DeviceError(f"device {str(name)!r} is not available here; expected 'cpu'")
        if number and (not number.isdigit() or int(number) != 0 or index is not None) or index not in (None, 0):
            wanted = f"{name}" if index is None else f"{name}:{index}"
            raise DeviceError(f"device {wanted!r} does not exist: there is one cpu device; use 'cpu' or 'cpu:0'")
        self.type = kind
        self.index = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"


CPU = device("cpu")
