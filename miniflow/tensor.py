"""The Tensor: an array with a dtype and a device, and its place on the tape.

This file holds the storage, the metadata and the exchange with NumPy and Python. Operations are functions in `ops`;
`autograd.methods` attaches them, so that `x.relu()`, `flow.relu(x)` and `nn.functional.relu(x)` are one function.
"""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from miniflow.backends import memory
from miniflow.backends.buffer import BufferArray
from miniflow.backends.runtime_defaults import user_level
from miniflow.device import CPU, device, of_array
from miniflow.dispatch.tape import Leaf, Node, Version, modes, note_change
from miniflow.dtype import dtype
from miniflow.errors import (
    ArgumentTypeError,
    AutogradError,
    DeviceError,
    DTypeError,
    PickleError,
    PlacementError,
    ShapeError,
)


class Size(tuple):
    """The shape of a tensor: a tuple that prints as `miniflow.Size([2, 3])`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"miniflow.Size({list(self)})"

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return Size(item) if isinstance(index, slice) else item


class Storage(NamedTuple):
    """Where the memory of a tensor and its views begins, and its bytes."""

    address: int
    size: int

    def data_ptr(self) -> int:
        """The address."""
        return self.address

    def nbytes(self) -> int:
        """How many bytes."""
        return self.size


class Tensor:
    """An n-dimensional array whose operations are recorded for differentiation.

    Created by `flow.tensor`, `flow.zeros`, `flow.from_numpy` and the other factories.
    """

    # _array    numpy array, on a cuda device a DeviceArray; views of one memory are views of arrays
    # _edge     (node, output index) of what made this tensor, (Leaf, 0) for a leaf that wants gradients, else None
    # _version  counter of in-place writes, shared along views; None until somebody needs it
    # _view     (parent, op, attrs, version): how this view was taken, and the version for which _edge is valid; else
    # None
    # _grad     the accumulated gradient
    __slots__ = ("_array", "_edge", "_version", "_view", "_grad", "__weakref__", "__dict__")

    __array_priority__ = 1000  # ndarray + Tensor asks Tensor.__radd__ first
    # there are no such tensors
    is_meta = is_mkldnn = is_mps = is_nested = is_quantized = is_sparse = is_sparse_csr = is_xpu = False

    _of_data: Callable[..., Tensor]  # what `Tensor(...)` makes: see `miniflow.__init__`

    def __init__(self, *data: Any, **options: Any):
        """A float32 tensor of data, or uninitialized of sizes; `flow.tensor` keeps the dtype of the data.

        Source: `torch.Tensor`.
        """
        tensor = Tensor._of_data(*data, **options)
        self._array, self._edge, self._version, self._view, self._grad = tensor._array, None, None, None, None

    @classmethod
    def _wrap(cls, array: np.ndarray) -> Tensor:
        """A tensor around `array`, without a copy or a check."""
        tensor = cls.__new__(cls)
        tensor._array = array
        tensor._edge = None
        tensor._version = None
        tensor._view = None
        tensor._grad = None
        return tensor

    # metadata

    @property
    def shape(self) -> Size:
        """The sizes of all dimensions."""
        return Size(self._array.shape)

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the size of dimension `dim`."""
        return self.shape if dim is None else self._array.shape[dim]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    ndimension = dim

    @property
    def dtype(self) -> dtype:
        """The element type."""
        return dtype.from_numpy(self._array.dtype)

    @property
    def device(self) -> device:
        """Where the memory is.

        Raises:
            PlacementError: for a global tensor outside of `global_mode`: it has a placement.
        """
        location = self._device
        if location.is_global:
            if modes.global_layout is not None:
                return device(location.type)
            raise PlacementError(
                "device: Only local tensors have 'device'. Please use '.placement' for global tensors."
            )
        return location

    @property
    def is_global(self) -> bool:
        """Whether its parts lie on the ranks of a placement."""
        return memory.is_global(self._array)

    @property
    def is_local(self) -> bool:
        """Whether all of it is on one device."""
        return not self.is_global

    @property
    def is_lazy(self) -> bool:
        """Whether it is a tensor of a graph that is being recorded, without values. `oneflow.Tensor.is_lazy`."""
        return getattr(self._array, "is_symbolic", False)

    @property
    def _device(self) -> Any:
        """The device, or the placement of a global tensor: where constants and results are made."""
        return CPU if type(self._array) is np.ndarray else of_array(self._array)

    @property
    def _device_and_sbp(self) -> Any:
        """The device, or the placement and SBP of a global tensor: where tensors of its shape are made."""
        return getattr(self._array, "placement_and_sbp", None) or self._device

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.size * self._array.itemsize

    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Steps between neighbours along each dimension, or along `dim`, in elements."""
        strides = tuple(s // self._array.itemsize for s in self._array.strides)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """Elements between the start of the memory this tensor is a view of and its first element."""
        return (self.data_ptr() - self.untyped_storage().address) // self._array.itemsize

    def untyped_storage(self) -> Storage:
        """The memory that this tensor is a view of. `torch.Tensor.untyped_storage`."""
        if not memory.is_host(self._array):
            return Storage(self._array.block.address, self._array.block.memory.nbytes)
        root = self._array
        while isinstance(root.base, np.ndarray):
            root = root.base
        return Storage(memory.address(root), root.nbytes)

    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order in memory, without gaps: also those of a tensor list."""
        if type(self._array) is BufferArray:
            return self._array.are_in_one_memory()
        return self._array.flags.c_contiguous

    def data_ptr(self) -> int:
        """The address of the first element, in the memory of the device."""
        return memory.address(self._array)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating type."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex, which none is."""
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self._array.dtype.kind not in "bu"

    @property
    def is_cpu(self) -> bool:
        """Whether the memory is that of the CPU."""
        return self._device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self._device.type == "cuda"

    def get_device(self) -> int:
        """The index of the CUDA device, or -1 for the CPU."""
        return self.device.index if self.is_cuda else -1

    def record_stream(self, stream: Any) -> None:
        """Record that another stream uses this memory: it is not reused before that stream has finished.

        Args:
            stream: a `flow.cuda.Stream`.

        Source: `torch.Tensor.record_stream`.
        """
        if not memory.is_host(self._array):
            self._array.block.record_stream(stream)

    # the tape

    @property
    def version(self) -> int:
        """How many in-place writes this memory has seen."""
        return self._version.value if self._version is not None else 0

    def _shared_version(self) -> Version:
        if self._version is None:
            self._version = Version()
        return self._version

    def _written(self) -> None:
        """Count an in-place write."""
        self._shared_version().value += 1

    def _fresh_edge(self) -> tuple | None:
        """The edge, regenerated from the parent if this is a view of memory that was written to since."""
        if self._view is not None and self._view[3] != self.version:
            stale = [self]
            while (parent := stale[-1]._view[0])._view is not None and parent._view[3] != self.version:
                stale.append(parent)
            for view in reversed(stale):
                parent, op, attrs, _ = view._view
                view._edge = op.regenerate_view(parent, attrs)
                view._view = (parent, op, attrs, self.version)
        return self._edge

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self._fresh_edge() is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether gradients of this leaf are computed, and return the tensor itself.

        Hooks stay registered while it is False.

        Raises:
            AutogradError: for a non-leaf, or a dtype that has no gradients.
        """
        if requires_grad and self._edge is None:
            if not self.is_floating_point():
                raise AutogradError(f"requires_grad_: got {self.dtype}; only floating dtypes have gradients: x.float()")
            leaf = Leaf(self)
            leaf.hooks, leaf.after = self.__dict__.pop("_hooks_of_frozen", (None, None))
            self._edge = (leaf, 0)
        elif not requires_grad and self._fresh_edge() is not None:
            if not self.is_leaf:
                raise AutogradError("requires_grad_(False) on a non-leaf: use x.detach() to cut it from the tape")
            leaf = self._edge[0]
            if leaf.hooks or leaf.after:
                self.__dict__["_hooks_of_frozen"] = leaf.hooks, leaf.after
            self._edge = None
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this tensor."""
        edge = self._fresh_edge()
        return edge is None or type(edge[0]) is Leaf

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, None for a leaf."""
        return None if self.is_leaf else self._edge[0]

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        return 0 if self._edge is None else self._edge[1]

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by `backward`, None before the first."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise AutogradError(f"grad: got {type(value).__name__}; expected a Tensor or None")
            if value.shape != self.shape or value._array.dtype != self._array.dtype:
                raise AutogradError(
                    f"grad: got a gradient of shape {tuple(value.shape)} and {value.dtype}; "
                    f"expected {tuple(self.shape)} and {self.dtype}"
                )
            if value._device != self._device:
                raise DeviceError(f"grad: got a gradient on {value._device}; expected {self._device}: use gradient.to")
        if modes.tracer is not None:
            modes.tracer.keep_gradient(self)
        self._grad = value

    def detach(self) -> Tensor:
        """The same memory without history: no gradient flows through the result. Writes are seen by both."""
        alias = Tensor._wrap(self._array)
        alias._version = self._shared_version()
        return alias

    def detach_(self) -> Tensor:
        """Drop the history of the tensor itself: it becomes a leaf that does not require grad.

        Raises:
            AutogradError: for a view, whose history is that of its base: use `detach()`.
        """
        if self._view is not None:
            raise AutogradError("detach_: got a view; expected a tensor with memory of its own: use x.detach()")
        self._edge = None
        return self

    @property
    def data(self) -> Tensor:
        """As `detach()`, but in-place changes to it are not seen by the tape's checks."""
        return Tensor._wrap(self._array)

    @data.setter
    def data(self, value: Tensor) -> None:
        if value.dtype is not self.dtype:
            raise DTypeError(f"data: got {value.dtype}; expected {self.dtype}, the dtype of the tensor")
        if value._device != self._device:
            raise DeviceError(f"data: got a tensor on {value._device}; expected {self._device}: use value.to")
        if modes.tracer is not None:
            modes.tracer.refuse_other_memory(self, "tensor.data = ...")
        self._array = value._array

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf in `.grad` after backward."""
        self._require_grad("retain_grad")
        if not self.is_leaf and not self.__dict__.get("retains_grad"):
            self.__dict__["retains_grad"] = True
            reference = weakref.ref(self)  # a strong one would keep the graph alive

            def keep(gradient: Tensor) -> None:
                tensor = reference()
                if tensor is not None:
                    tensor._grad = gradient.clone() if tensor._grad is None else tensor._grad + gradient

            self.register_hook(keep)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called on this non-leaf."""
        return self.__dict__.get("retains_grad", False)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call `hook(gradient)` when the gradient of this tensor is complete; a returned tensor replaces it.

        The replacement must have the same shape and dtype; else backward raises AutogradError.

        Returns:
            a handle whose `remove()` removes the hook.
        """
        self._require_grad("register_hook")
        node, index = self._edge
        node.hooks = [] if node.hooks is None else node.hooks
        return HookHandle.of(node.hooks, (index, hook))

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call `hook(self)` each time a backward has added to the gradient of this leaf.

        Returns:
            a handle whose `remove()` removes the hook.

        Source: `torch.Tensor.register_post_accumulate_grad_hook`.
        """
        if not self.is_leaf or self._fresh_edge() is None:
            raise AutogradError("register_post_accumulate_grad_hook: expected a leaf that requires grad")
        leaf, _ = self._edge
        leaf.after = leaf.after or []
        return HookHandle.of(leaf.after, (0, hook))

    def _require_grad(self, name: str) -> None:
        if self._fresh_edge() is None:
            raise AutogradError(f"{name}: the tensor does not require grad; call requires_grad_() before it is used")

    # exchange with Python and NumPy

    def numpy(self, *, force: bool = False) -> np.ndarray | list[np.ndarray]:
        """The array itself, which shares the memory; from another device, or of a global tensor, a copy.

        A tensor that requires grad gives a copy too, since changes through NumPy could not be recorded. So PyTorch's
        `force` changes nothing. Of dtype `tensor_buffer` it is the list of the arrays.

        Source: `oneflow.Tensor.numpy`.
        """
        array = self._host_array()
        if type(array) is BufferArray:
            return array.elements()
        return array.copy() if self.requires_grad else array

    def _host_array(self) -> np.ndarray:
        """The values on the CPU, also of a tensor that requires grad: to be read only."""
        if modes.tracer is not None:
            modes.tracer.look(self, "the values of a tensor")
        return memory.to_host(self._array)

    @property
    def __cuda_array_interface__(self) -> dict:
        """The memory of a tensor on a GPU, for kernels of numba.cuda and for other libraries.

        Raises:
            AttributeError: for a tensor elsewhere, as the protocol requires.
        """
        return self._array.__cuda_array_interface__

    @property
    def __hostcuda_array__(self) -> Callable[[], Any]:
        """The memory of a tensor on an emulated device, for kernels of `miniflow.hostcuda`.

        Raises:
            AttributeError: for a tensor elsewhere.
        """
        return self._array.__hostcuda_array__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False and not memory.is_host(self._array):
            raise ValueError(f"the tensor is on {self._device}: its NumPy array is a copy")
        if modes.enabled and self.requires_grad:
            warnings.warn(
                f"NumPy gets the values of a tensor of shape {tuple(self.shape)} that requires grad: no gradient flows "
                "through what it computes. Use flow.exp for np.exp, and so on; or, for values alone, x.detach()",
                stacklevel=user_level(),
            )
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Export by DLPack, without a copy: `torch.from_dlpack(x)`, `np.from_dlpack(x)`.

        Raises:
            AutogradError: if the tensor requires grad, since changes could not be recorded.
        """
        self.__dlpack_device__()
        if self.requires_grad:
            raise AutogradError("DLPack: the tensor requires grad; use x.detach()")
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        if not memory.is_host(self._array):
            raise BufferError(f"DLPack: the tensor is on {self._device}; copy it to the CPU first: x.cpu()")
        return self.detach().numpy().__dlpack_device__()

    def item(self) -> bool | int | float:
        """The only element as a Python number.

        Raises:
            ShapeError: unless there is exactly one element.
        """
        if self._array.size != 1:
            raise ShapeError(f"item: got shape {tuple(self.shape)}; expected exactly one element: use tolist()")
        value = self._host_array().item()
        return float(value) if self.dtype.is_floating_point else value

    def tolist(self) -> Any:
        """Nested lists of Python numbers, or one number for a 0-dim tensor."""
        array = self._host_array()
        if array.dtype.kind == "V" and type(array) is np.ndarray:  # bfloat16
            return array.astype(np.float32).tolist()
        return array.tolist()

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise ShapeError(
                f"bool: a tensor of shape {tuple(self.shape)} has no single truth value; use x.any() or x.all()"
            )
        return bool(self._host_array().item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if self.dtype.category == 2:
            raise DTypeError(f"index: got a tensor of {self.dtype}; expected one integer")
        return int(self.item())

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise ArgumentTypeError("len: a 0-dim tensor has no length; use x.item() for its value")
        return self._array.shape[0]

    def __iter__(self) -> Any:
        if self._array.ndim == 0:
            raise ArgumentTypeError("iter: cannot iterate over a 0-dim tensor; use x.item() for its value")
        return (self[i] for i in range(self._array.shape[0]))

    def __contains__(self, value: Any) -> bool:
        """Whether any element equals `value`, a number, or a tensor that is compared element by element."""
        if not isinstance(value, Tensor | bool | int | float | np.generic):
            raise ArgumentTypeError(f"in: got a value of type {type(value).__name__}; expected a Tensor or a number")
        return bool((self == value).any())

    def __format__(self, spec: str) -> str:
        is_number = self._array.ndim == 0 and self._array.dtype.names is None  # and no tensor buffer
        return format(self.item() if is_number else repr(self), spec)

    __hash__ = object.__hash__

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PickleError("tensors are not pickled: write with flow.save(obj, path) and read with flow.load(path)")

    def __copy__(self) -> Tensor:
        result = self.detach()
        if self.is_leaf:
            return result.requires_grad_(self.requires_grad)
        result._edge = self._edge
        return result

    def __deepcopy__(self, memo: dict) -> Tensor:
        if not self.is_leaf:
            raise AutogradError("deepcopy: only leaf tensors can be deep-copied; use x.detach().clone()")
        if modes.tracer is not None:
            modes.tracer.look(self, "the values of a tensor")
        result = type(self)._wrap(self._array.copy())
        memo[id(self)] = result
        if self._grad is not None:
            result._grad = copy.deepcopy(self._grad, memo)
        return result.requires_grad_(self.requires_grad)


def constant_like(x: Tensor, array: np.ndarray) -> Tensor:
    """A constant tensor with the values of a NumPy array, on the device of `x`."""
    constant = Tensor._wrap(array if type(x._array) is np.ndarray else memory.move(array, x._device))
    if modes.tracer is not None:
        modes.tracer.created(constant)
    return constant


class HookHandle:
    """Removes a hook: by `remove()`, or at the end of a `with` block."""

    def __init__(self, hooks: list, entry: tuple):
        self._hooks = hooks
        self._entry = entry

    @classmethod
    def of(cls, hooks: list, entry: tuple, prepend: bool = False) -> HookHandle:
        """Add a hook at the end of `hooks`, or at the front with `prepend`."""
        hooks.insert(0 if prepend else len(hooks), entry)
        note_change()
        return cls(hooks, entry)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks[:] = [entry for entry in self._hooks if entry is not self._entry]
        note_change()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
