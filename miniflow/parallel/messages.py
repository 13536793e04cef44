"""Messages from one rank to another, each with its shape and dtype; and what all collectives of local tensors need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.dispatch.tape import no_grad
from miniflow.dtype import ALL, dtype
from miniflow.errors import ArgumentError, DTypeError, PlacementError, ShapeError
from miniflow.ops.creation import empty
from miniflow.parallel import world
from miniflow.parallel.group import ProcessGroup, Work, ranks_of
from miniflow.tensor import Tensor

MAX_DIMS = 16  # of a tensor that is sent


def send(tensor: Tensor, dst: int, send_meta: bool = True, *, group: ProcessGroup | None = None, tag: int = 0) -> None:
    """Send a tensor to another rank, which calls `recv`.

    Args:
        tensor: of at most 16 dims.
        dst: the number of the rank in the world.
        send_meta: of OneFlow, without effect: shape and dtype are always sent, and compared if `recv` is told them.
        group: has to hold both ranks; None for all.
        tag: `recv` takes messages of its own tag only, in the order in which they were sent.

    Raises:
        PlacementError: where ranks are simulated.

    Source: `oneflow.comm.send`, `torch.distributed.send`.
    """
    _start_sending("send", tensor, dst, group, tag).wait()


def isend(tensor: Tensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> Work:
    """Start to send a tensor, which must not change before `wait`. Arguments as of `send`.

    Source: `torch.distributed.isend`.
    """
    return _start_sending("isend", tensor, dst, group, tag)


def recv(
    src: int, shape: Sequence[int] | None = None, dtype: dtype | None = None, device: str | None = None,
    *, out: Tensor | None = None, group: ProcessGroup | None = None, tag: int = 0,
) -> Tensor:  # fmt: skip
    """The tensor that rank `src` sends.

    Args:
        src: the sender.
        shape, dtype: what the tensor has to be; None for whatever is sent.
        device: where to put it; None for the CPU.
        out: a tensor to write it to.
        group, tag: as of `send`.

    Raises:
        PlacementError: where ranks are simulated.
        ShapeError, DTypeError: if something else was sent.

    Source: `oneflow.comm.recv`.
    """
    _check_message("recv", "src", src, group, tag)
    if (shape is None) != (dtype is None):
        raise ArgumentError("recv: expected shape and dtype together, or neither")
    header = Header("recv", src, tag)
    header.result()
    if shape is not None:
        header.compare(tuple(shape), dtype)
    result = empty(header.shape, dtype=header.dtype, device=device) if out is None else out
    write("recv", result, Arrival(header, result).result())
    return result


def irecv(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0) -> Work:
    """Start to receive a tensor, which is written by `wait`.

    Args:
        tensor: of the shape and dtype of what is sent.
        src: the sender; None for any: then the values are sent as late as `wait`.
        group, tag: as of `send`.

    Raises:
        PlacementError: where ranks are simulated.
        ShapeError, DTypeError: by `wait`, if something else was sent.

    Source: `torch.distributed.irecv`.
    """
    return _start_receiving("irecv", tensor, src, group, tag)


def receive(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0) -> int:
    """Replace a tensor by one that a rank sends; `recv` of `flow.distributed`. Arguments as of `irecv`.

    Returns:
        the rank that has sent it.

    Source: `torch.distributed.recv`.
    """
    work = _start_receiving("recv", tensor, src, group, tag)
    work.wait()
    return work._pending.header.source


class Header:
    """What comes before the values: their shape and dtype.

    Attributes:
        source: the rank that has sent it.
        shape, dtype: of the values.
    """

    def __init__(self, name: str, src: int | None, tag: int):
        self.name, self.tag, self.numbers = name, tag, np.zeros(MAX_DIMS + 2, np.int64)
        self.message = world.communicator().post(self.numbers, src, 2 * tag, True)

    def result(self) -> None:
        """Wait for it."""
        self.source = self.message.result()
        ndim, dtype_index, *sizes = self.numbers.tolist()
        self.shape, self.dtype = tuple(sizes[:ndim]), ALL[dtype_index]

    def compare(self, shape: tuple[int, ...], dtype: dtype) -> None:
        """Refuse values of another kind than is expected."""
        for error, sent, expected in ((ShapeError, self.shape, shape), (DTypeError, self.dtype, dtype)):
            if sent != expected:
                raise error(
                    f"{self.name}: rank {self.source} has sent a tensor of {self.dtype} and shape {self.shape}; "
                    f"expected {dtype} and {shape}"
                )


class Arrival:
    """A tensor that is on its way: a header, and the values.

    Args:
        src: their sender; None for that of the header, once it is here.
    """

    def __init__(self, header: Header, tensor: Tensor, src: int | None = None):
        self.header, self.tensor = header, tensor
        self.values = landing(tensor)
        self.message = None if src is None else self._post(src)

    def _post(self, src: int) -> Any:
        return world.communicator().post(self.values, src, 2 * self.header.tag + 1, True)

    def _message(self) -> Any:
        """That of the values, which belongs to the header that has come."""
        self.header.result()
        self.header.compare(tuple(self.tensor.shape), self.tensor.dtype)
        self.message = self.message or self._post(self.header.source)
        return self.message

    def done(self) -> bool:
        """Whether it is here."""
        return self.header.message.done() and self._message().done()

    def result(self) -> Any:
        """Wait for the values."""
        self._message().result()
        return self.values


class Departure:
    """A header and values that are being sent."""

    def __init__(self, *messages: Any):
        self.messages = messages

    def done(self) -> bool:
        """Whether their memory may be used."""
        return all([message.done() for message in self.messages])

    def result(self) -> None:
        """Wait for that."""
        for message in self.messages:
            message.result()


def _start_sending(name: str, tensor: Tensor, dst: int, group: ProcessGroup | None, tag: int) -> Work:
    _check_message(name, "dst", dst, group, tag)
    x = values_of(name, tensor)
    header = np.zeros(MAX_DIMS + 2, np.int64)
    header[:2] = x.ndim, [t.numpy for t in ALL].index(x.dtype)
    header[2 : 2 + x.ndim] = x.shape
    post = world.communicator().post
    values = post(x, dst, 2 * tag + 1)  # first, since it may be refused
    return Work(Departure(post(header, dst, 2 * tag), values), lambda _: None)


def _start_receiving(name: str, tensor: Tensor, src: int | None, group: ProcessGroup | None, tag: int) -> Work:
    _check_message(name, "src", src, group, tag)
    return Work(Arrival(Header(name, src, tag), tensor, src), lambda values: write(name, tensor, values))


def landing(tensor: Tensor) -> Any:
    """Memory for what is received for a tensor."""
    return memory.empty(tuple(tensor.shape), tensor._array.dtype, world.receiving(tensor.device))


def _check_message(name: str, argument: str, rank: int | None, group: ProcessGroup | None, tag: int) -> None:
    if len(world.owned()) > 1:
        raise PlacementError(
            f"{name}: the ranks are simulated, and run one script line by line together; start it as MPI ranks: "
            "python -m miniflow.distributed.launch --nproc_per_node 2 script.py"
        )
    if rank is not None or argument == "dst":
        check_rank(name, argument, rank, ranks_of(group))
    if not isinstance(tag, int) or not 0 <= tag < 16384:
        raise ArgumentError(f"{name}: got tag={tag!r}; expected an int from 0 to 16383")


# of collectives too


def values_of(name: str, tensor: Tensor) -> Any:
    """The values, contiguous, where the communicator takes them."""
    if tensor.is_global:
        raise PlacementError(f"{name}: got a global tensor; expected a local one: x.to_local()")
    return memory.row_major(world.sendable(tensor._array))


@no_grad
def write(name: str, tensor: Tensor, values: Any, divisor: int = 1) -> None:
    """Write what came into a tensor of the same shape and dtype, divided by a number."""
    check_like(name, values, tensor)
    tensor.copy_(Tensor._wrap(values).to(tensor.device))
    if divisor > 1:
        tensor.div_(divisor)


def check_like(name: str, values: Any, tensor: Tensor) -> None:
    """Refuse values of another shape or dtype than those of a tensor."""
    if tuple(tensor.shape) != tuple(values.shape):
        raise ShapeError(f"{name}: got a tensor of shape {tuple(tensor.shape)} for values of shape {values.shape}")
    if tensor._array.dtype != values.dtype:
        raise DTypeError(f"{name}: got a tensor of {tensor.dtype} for values of {values.dtype}")


def described(x: Any) -> str:
    """The dtype and shape of an array: `float32[2, 3]`."""
    return f"{x.dtype}{list(x.shape)}"


def check_rank(name: str, argument: str, rank: int, ranks: Sequence[int]) -> None:
    """Refuse a rank that is none of those."""
    if not isinstance(rank, int) or rank not in ranks:
        expected = f"a rank below {world.size()}" if len(ranks) == world.size() else f"one of {list(ranks)}"
        raise ArgumentError(f"{name}: got {argument}={rank!r}; expected {expected}")
