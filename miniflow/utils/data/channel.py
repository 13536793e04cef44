"""How objects travel between a DataLoader and one of its workers: over a socket pair, in pickle's protocol 5.

A message is a list of byte strings: the pickle of the object, then the memory of the arrays in it, "out of band", so
that the receiver reads them straight into the memory they stay in (five times as fast as `multiprocessing.Pipe` for a
38 MB batch).

    number of parts (8 bytes)   size of each part (8 bytes each)   the parts

A Tensor, which refuses to be pickled, travels as its array. Pickle is safe here and only here: the other end is our own
child or parent process, nobody else has the socket, and nothing is kept.

Source: PEP 574, "Pickle protocol 5 with out-of-band data".
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from typing import Any

import numpy as np

from miniflow.errors import WorkerError
from miniflow.tensor import Tensor


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return Tensor._wrap, (obj.detach().numpy(),)
        return NotImplemented


def pack(obj: Any, what: str) -> list[bytes]:
    """The message that carries `obj`; tensors arrive as values, without gradient or history.

    Args:
        obj: anything that can be pickled, and tensors.
        what: what it is, for the error.

    Raises:
        WorkerError: if something in it cannot be pickled.

    >>> unpack(pack({"n": np.arange(3)}, "a batch"))
    {'n': array([0, 1, 2])}
    """
    stream, buffers = io.BytesIO(), []
    try:
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise WorkerError(
            f"DataLoader: {what} cannot travel between processes: {error}; expected tensors, arrays, plain values "
            "and classes and functions from the top level of a module: pass num_workers=0 for others"
        ) from error
    # copied, since a data set may reuse the memory of a sample for the next one
    return [stream.getvalue(), *(bytes(buffer.raw()) for buffer in buffers)]


def unpack(parts: list[Any]) -> Any:
    """The object that `pack` was given."""
    return pickle.loads(parts[0], buffers=parts[1:])


class Channel:
    """One end of a socket pair. A fork, or an argument of a new process, carries it over.

    >>> here, there = channel_pair()
    >>> here.send(pack("hello", "a word"))
    >>> there.receive()
    'hello'
    """

    def __init__(self, end: socket.socket):
        self.socket = end

    def send(self, parts: list[bytes]) -> None:
        """Send one message.

        Raises:
            OSError: if the other end is closed.
        """
        self.socket.sendall(struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts)) + parts[0])
        for part in parts[1:]:
            self.socket.sendall(part)

    def receive(self) -> Any:
        """Wait for one message, and return the object in it.

        Raises:
            EOFError, OSError: if the other end is closed, perhaps in the middle of a message.
        """
        (count,) = struct.unpack("<Q", self._read(8))
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count))
        return unpack([self._read(size) for size in sizes])

    def _read(self, size: int) -> memoryview:
        memory = memoryview(np.empty(size, np.uint8))
        done = 0
        while done < size:
            count = self.socket.recv_into(memory[done:])
            if not count:
                raise EOFError
            done += count
        return memory

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def channel_pair() -> tuple[Channel, Channel]:
    """Two connected ends."""
    first, second = socket.socketpair()
    return Channel(first), Channel(second)
