"""Where random numbers come from: a seed, and a count of the draws made so far.

The numbers themselves are a pure function of the seed, the number of the draw and the position in it (see
`formulas.philox`), so that a generator's whole state is two integers.
"""

from __future__ import annotations

import operator
import os
import threading
from typing import Any

import numpy as np

from miniflow.device import device as as_device
from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError
from miniflow.tensor import Tensor

FRESH_SEED = 67280421310721  # of a new Generator, as in PyTorch
one_at_a_time = threading.Lock()  # shared by all generators, so that they can be copied and sent to other processes


class Generator:
    """A stream of draws. Two generators with the same seed produce the same numbers.

    Args:
        device: the device whose random numbers it names; the numbers are the same on all.

    >>> import miniflow as flow
    >>> generator = flow.Generator().manual_seed(7)
    >>> first = flow.rand(3, generator=generator)
    >>> bool((first == flow.rand(3, generator=generator.manual_seed(7))).all())
    True

    Source: `torch.Generator`.
    """

    def __init__(self, device: Any = "cpu"):
        refuse_while_recording("Generator(...)")
        self.device = as_device(device)
        self._seed, self._offset = FRESH_SEED, 0

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` from its beginning, and return the generator.

        `flow.manual_seed` seeds the default generator, which serves every draw without `generator=`.

        Args:
            seed: an integer from -2**63 to 2**64 - 1; a negative one stands for `2**64 + seed`.

        Raises:
            ArgumentError: for a seed outside that range.
            GraphTraceError: in the build of a graph.

        >>> import miniflow as flow
        >>> a, b = (flow.manual_seed(0) and flow.rand(2) for _ in range(2))
        >>> bool((a == b).all())
        True

        Source: `torch.manual_seed`.
        """
        refuse_while_recording("manual_seed")
        seed = operator.index(seed)
        if not -(2**63) <= seed < 2**64:
            raise ArgumentError(f"manual_seed: got {seed}; expected an integer from -2**63 to 2**64 - 1")
        with one_at_a_time:
            self._seed, self._offset = seed % 2**64, 0
        return self

    def seed(self) -> int:
        """Start a stream with a seed from the operating system's randomness, and return that seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def next_draw(self) -> tuple[int, int]:
        """The `(seed, offset)` of the next draw; no other draw of this stream gets it."""
        with one_at_a_time:
            draw = self._seed, self._offset
            self._offset += 1
        return draw

    def numpy(self) -> np.random.Generator:
        """A NumPy generator that one draw of the stream seeds: for numbers that are wanted in Python, not in tensors.

        Raises:
            GraphTraceError: in the build of a graph.

        >>> import miniflow as flow
        >>> a, b = (flow.Generator().manual_seed(7).numpy().beta(2.0, 2.0) for _ in range(2))
        >>> a == b
        True

        Source: `numpy.random.Philox`, whose key is the draw.
        """
        refuse_while_recording("Generator.numpy")
        return np.random.Generator(np.random.Philox(key=self.next_draw()))

    def get_state(self) -> Tensor:
        """Seed and offset as a uint8 tensor of 16 elements, for `set_state`.

        `flow.get_rng_state` and `flow.set_rng_state` are these methods of the default generator.

        >>> import miniflow as flow
        >>> state = flow.get_rng_state()
        >>> a = flow.rand(2)
        >>> bool((flow.rand(2, generator=flow.set_rng_state(state)) == a).all())
        True
        """
        refuse_while_recording("get_state")
        with one_at_a_time:
            state = np.array([self._seed, self._offset], "<u8")
        return Tensor._wrap(state.view(np.uint8))

    def set_state(self, state: Tensor) -> Generator:
        """Continue where `get_state` was called.

        Raises:
            ArgumentError: if `state` is not such a tensor.
            GraphTraceError: in the build of a graph.
        """
        refuse_while_recording("set_state")
        array = state._array if isinstance(state, Tensor) else state
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != (16,):
            expected = "the uint8 tensor of shape (16,) from get_state()"
            raise ArgumentError(f"set_state: got no generator state; expected {expected}")
        seed, offset = np.ascontiguousarray(array).view("<u8").tolist()
        with one_at_a_time:
            self._seed, self._offset = seed, offset
        return self

    def __repr__(self) -> str:
        return f"Generator(device={str(self.device)!r}, seed={self._seed}, offset={self._offset})"


def refuse_while_recording(name: str) -> None:
    """Raise GraphTraceError if this thread records a graph: every call draws on from where the one before stopped."""
    if modes.tracer is not None:
        modes.tracer.fail(
            f"{name}: called in nn.Graph.build; expected it outside: build runs once, and a call of the graph could "
            "not repeat it: seed the generator before the call"
        )


default_generator = Generator()
default_generator.seed()


manual_seed, seed, initial_seed = default_generator.manual_seed, default_generator.seed, default_generator.initial_seed
get_rng_state, set_rng_state = default_generator.get_state, default_generator.set_state
