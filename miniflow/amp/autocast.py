"""`flow.autocast`: eager mixed precision. Each op casts its inputs to the dtype of its class, `Op.amp`.

Parameters stay float32. A white op gets a copy in half precision; the cast is recorded like any op, so
that gradients arrive in float32. Backward runs in the dtypes in which forward ran: it is not cast again.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from miniflow.dispatch.context_decorator import ContextDecorator
from miniflow.dispatch.dispatcher import Op
from miniflow.dispatch.tape import Leaf, modes
from miniflow.dtype import HALF, as_dtype, bfloat16, dtype, float16
from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.ops.promotion import cast
from miniflow.tensor import Tensor

FLOAT32 = np.dtype(np.float32)
DEFAULTS = {"cuda": float16, "cpu": bfloat16}
AS_GIVEN = ("gray", "clear", "untouched")


class autocast(ContextDecorator):
    """Run the ops inside in half precision where that is fast and safe: a context manager and a decorator.

    Matrix products and convolutions cast their inputs to `dtype`; losses, exponentials, logarithms and means cast
    theirs to float32; other ops compute in the dtypes of their inputs. `miniflow.amp` explains the classes of ops.
    Regions nest, and belong to the thread that enters them. Leave the region before `backward`.

    Args:
        device_type: "cuda", the default, or "cpu": ops on other devices are left alone.
        dtype: float16 or bfloat16; by default float16 on cuda devices and bfloat16 on the CPU.
        enabled: if False, autocasting is off inside.
        cache_enabled: cast a parameter once in the region, not at every use.

    Raises:
        ArgumentError: for another device type or dtype.

    >>> import miniflow as flow
    >>> w = flow.ones(2, 2, requires_grad=True)
    >>> with autocast("cpu", dtype=flow.bfloat16):
    ...     y = flow.matmul(flow.ones(3, 2), w)
    >>> y.dtype, w.dtype
    (miniflow.bfloat16, miniflow.float32)
    >>> y.sum().backward()
    >>> w.grad.dtype
    miniflow.float32

    Source: `torch.autocast`; `oneflow.autocast`.
    """

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        if not isinstance(device_type, str):
            raise ArgumentTypeError(f"autocast: got device_type={device_type!r}; expected 'cuda' or 'cpu'")
        if device_type not in DEFAULTS:
            raise ArgumentError(f"autocast: got device_type={device_type!r}; expected 'cuda' or 'cpu'")
        dtype = DEFAULTS[device_type] if dtype is None else as_dtype(dtype)
        if dtype.numpy not in HALF:
            raise ArgumentError(f"autocast: got dtype={dtype}; expected flow.float16 or flow.bfloat16")
        self.device_type = device_type
        self.dtype = dtype
        self.enabled = bool(enabled)
        self.cache_enabled = cache_enabled is not False
        self._previous: list[Caster | None] = []

    def __enter__(self) -> autocast:
        previous = modes.autocast
        self._previous.append(previous)
        dtypes = {} if previous is None else dict(previous.dtypes)
        dtypes.pop(self.device_type, None)
        if self.enabled:
            dtypes[self.device_type] = self.dtype.numpy
        cache = None if not self.cache_enabled else CastCache() if previous is None else previous.cache
        modes.autocast = Caster(dtypes, cache) if dtypes else None
        return self

    def __exit__(self, *_: object) -> None:
        modes.autocast = self._previous.pop()

    def clone(self) -> autocast:
        return autocast(self.device_type, self.dtype, self.enabled, self.cache_enabled)


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether ops on devices of this type are autocast in this thread, here."""
    return modes.autocast is not None and device_type in modes.autocast.dtypes


def get_autocast_dtype(device_type: str) -> dtype:
    """The dtype to which matrix products on devices of this type would be cast, here or in a region opened here."""
    if is_autocast_enabled(device_type):
        return as_dtype(modes.autocast.dtypes[device_type])
    return DEFAULTS[device_type]


class Caster:
    """Casts the inputs of ops; `dispatcher.call` calls it.

    Attributes:
        dtypes: device type -> the NumPy dtype of white ops there.
        cache: None, or the casts of parameters that were made in the region.
    """

    def __init__(self, dtypes: dict[str, np.dtype], cache: CastCache | None):
        self.dtypes = dtypes
        self.cache = cache

    def with_own_cache(self) -> Caster:
        """One that casts as this one does, and finds none of its casts."""
        return Caster(self.dtypes, self.cache and CastCache())

    def __call__(self, op: type[Op], inputs: tuple) -> tuple:
        if op.amp in AS_GIVEN:
            return inputs
        half = self.dtype_for(inputs)
        if half is None:
            return inputs
        if op.amp == "white":
            return tuple([self.cast(x, half) if isinstance(x, Tensor) else x for x in inputs])
        if op.amp == "black" or op.backward is not None:
            return tuple([cast(x, FLOAT32) if _is_half(x) else x for x in inputs])
        return inputs  # comparisons and the like, whose results are not floats

    def dtype_for(self, inputs: tuple) -> np.dtype | None:
        """The dtype of white ops on the device of the first tensor among `inputs`."""
        for x in inputs:
            if isinstance(x, Tensor):
                return self.dtypes.get("cpu" if type(x._array) is np.ndarray else x._device.type)
        return None

    def cast(self, x: Tensor, half: np.dtype) -> Tensor:
        """`x` in half precision; dtypes other than float32 and half precision are unchanged."""
        dtype = x._array.dtype
        if dtype == half or not (dtype == FLOAT32 or dtype in HALF):
            return x
        return cast(x, half) if self.cache is None else self.cache.cast(x, half)


def _is_half(x: Any) -> bool:
    return isinstance(x, Tensor) and x._array.dtype in HALF


class CastCache:
    """The casts of parameters: each is made once in a region, unless the parameter has changed since.

    An entry does not keep its tensor alive. A cast that was made while nothing was recorded is not used where gradients
    are needed, and one made while a graph was recorded is used in that graph alone.
    """

    def __init__(self):
        self._casts: dict[tuple[int, np.dtype], tuple] = {}

    def cast(self, x: Tensor, half: np.dtype) -> Tensor:
        """`x` in half precision."""
        if x._edge is None or type(x._edge[0]) is not Leaf or x._view is not None:
            return cast(x, half)
        key = (id(x), half)
        if key in self._casts:
            reference, result, array, version, tracer = self._casts[key]
            unchanged = reference() is x and array is x._array and version == x.version and tracer is modes.tracer
            if unchanged and (result._edge is not None or not modes.enabled):
                return result
        result = cast(x, half)
        self._casts[key] = (weakref.ref(x), result, x._array, x.version, modes.tracer)
        return result
