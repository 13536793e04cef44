"""The one way in: every op call passes through `call`.

In this order: the kernel of the tensors' device computes, and the tape records a node when a differentiable input
requires grad and grad mode is on. An `Op` is a class; see its docstring for how to write one.

`infer` comes first, and says what the kernel's outputs are. NumPy ufuncs and views on the CPU are the fast path: NumPy
refuses what `infer` would refuse, and `infer` is asked only then, since its error says more.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy import ndarray, ufunc

import miniflow.backends.cpu  # noqa: F401  (registers the kernels)
from miniflow.backends import memory
from miniflow.backends.buffer import BufferArray
from miniflow.backends.geometry import layout_of
from miniflow.backends.registry import kernel_of, without_half
from miniflow.device import of_array
from miniflow.dispatch.call_errors import refuse_operand
from miniflow.dispatch.tape import ABSENT, Node, Version, modes
from miniflow.errors import DeviceError, DTypeError, PlacementError, ShapeError
from miniflow.formulas.scalar import Expr
from miniflow.tensor import Tensor

NUMBERS = (bool, int, float, np.generic)
INFER_CHECKS = ("infer", "integers")  # values of `checks_values` for which `infer` looks at elements
MOST_KNOWN = 1024  # for how many geometries of operands an op remembers the outputs
wrap = Tensor._wrap


Bounds = tuple[tuple[int, int], ...]  # start and stop for each dim


class Shard(NamedTuple):
    """Which parts of global tensors a rank computes with: see `Op.on_shard`.

    Attributes:
        result: the part of the first result.
        shape: the whole shape of that.
        operands: the parts of the operands; None for what is no array.
        wholes: the operands themselves, of which the shapes are known, but not the values.
    """

    result: Bounds
    shape: tuple[int, ...]
    operands: tuple[Bounds | None, ...]
    wholes: Sequence[Any]


class Op:
    """An operator: its shape rule and its gradient. A kernel of the same name in `backends/` computes it.

    A subclass writes, without decorators (they become static methods):

        infer(*inputs, **attrs)     -> the outputs' `(shape, numpy dtype)`, or a list of them; raises ShapeError ...
        backward(ctx, *cotangents)  -> the inputs' gradients, in terms of ops: so they can be differentiated again

    Inputs are positional (tensors, numbers or None), attributes are keywords.
    """

    # the results and their gradient
    outputs: tuple[str, ...] = ("y",)  # names of the results
    nondifferentiable: tuple[str, ...] = ()  # results that get no cotangent: integers, saved statistics
    view = False  # the result shares the first input's memory
    backward: Callable | None = None
    broadcasts = False  # the engine sums what `backward` returns to the shapes of the inputs
    saves: tuple[str, ...] = ()  # the inputs, then the outputs, that `backward` reads: `ctx.saved`
    saved_if_needed: dict[str, int] = {}  # a saved input -> the input whose gradient alone reads it: saved for that one
    # what refuses some elements (indices out of range): "infer", where it can look at them, or the "kernel"; "integers"
    # if `infer` refuses those only (divisors of zero); "" for none. Such an `infer` is asked at every call, also by a
    # graph, which keeps such ops although nobody reads their results
    checks_values = ""
    shape_depends_on_values = False  # that of the result; graphs refuse such ops
    function_name = "op"  # in errors and grad_fn; by default the class's name in snake case
    parameters: tuple[str, ...] = ()  # names of the operands in errors; by default those of `infer`

    # where else it runs: mixed precision (see `amp`), global tensors (see `sbp`) and graphs
    amp: str | None = None  # its class in mixed precision
    keeps_float32: tuple[int, ...] = ()  # the inputs that stay float32 beside others in half precision
    promotes = False  # half precision and float32 together give float32
    computes_in_first = False  # it writes to its first input, in the dtype of that
    sbp: Callable | None = None  # sbp(*operands, ranks, **attrs): signatures for a placement dimension of so many ranks
    made_by_passes = False  # only passes over graphs make it: it stands in no saved graph
    communicates = False  # ranks exchange values by it: graphs keep all of them, in order
    waits = False  # for what other ranks send

    # of an update, see `update`
    groups = 0  # how many groups of inputs it takes
    mutates: tuple[int, ...] = ()  # the groups that it changes
    optional: dict[int, str] = {}  # a group that may be absent -> the attribute that says so
    per_parameter: tuple[str, ...] = ()  # attributes that are lists with one entry for each parameter

    # made by `__init_subclass__`
    single: bool  # whether it has one result; what has a number of results that varies says False
    saved_inputs: tuple[tuple[int, int | None], ...] = ()  # their positions, with those of `saved_if_needed`
    saved_outputs: tuple[int, ...] = ()
    kernels: dict[type, Callable]  # what computes it, for each type of arrays that it was called with
    by_name: dict[str, type[Op]] = {}  # every op of this package

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("miniflow."):
            Op.by_name[cls.__name__] = cls
        for name in ("infer", "backward", "sbp", "on_shard"):
            if inspect.isfunction(cls.__dict__.get(name)):
                setattr(cls, name, staticmethod(cls.__dict__[name]))
        if "function_name" not in cls.__dict__:
            cls.function_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        cls.kernels = {}
        if "single" not in cls.__dict__:
            cls.single = len(cls.outputs) == 1
        if "infer" in cls.__dict__ or cls.saves:
            names = [p.name for p in inspect.signature(cls.infer).parameters.values() if p.kind is not p.KEYWORD_ONLY]
            inputs = [n for n in cls.saves if n in names]  # a name that both have is the input's
            outputs = [n for n in cls.saves if n not in names]
            if inputs + outputs != list(cls.saves):
                raise TypeError(f"{cls.__name__}.saves names inputs first, then outputs; got {cls.saves}")
            cls.saved_inputs = tuple((names.index(n), cls.saved_if_needed.get(n)) for n in inputs)
            cls.saved_outputs = tuple(cls.outputs.index(n) for n in outputs)

    @staticmethod
    def infer(x: Any, *others: Any, **attrs: Any) -> Any:
        """By default the result is like the first operand."""
        return x.shape, x.dtype

    @staticmethod
    def on_shard(op: type[Op], arrays: list, attrs: dict[str, Any], shard: Shard) -> Any:
        """What a rank computes of a global tensor: by default what the kernel makes of its shards.

        Args:
            arrays: the shards of the operands.
            attrs: the attributes; `shape` is that of its shard.
            shard: which parts these are.
        """
        return run_kernel(op, arrays, attrs)

    @staticmethod
    def show(attrs: dict[str, Any]) -> str | None:
        """The attributes as programs of graphs print them; None for `name=value`."""
        return None

    @classmethod
    def views(cls, attrs: dict[str, Any]) -> Sequence[tuple[type[Op], dict[str, Any]]]:
        """How an operator takes its views, which is what graphs record: for each an operator and its attributes."""
        return ((cls, attrs),)

    @classmethod
    def regenerate_view(cls, parent: Tensor, attrs: dict) -> tuple | None:
        """The edge of the view that this op makes of `parent` now."""
        enabled, modes.enabled = modes.enabled, True
        try:
            return call(cls, parent, **attrs)._edge
        finally:
            modes.enabled = enabled


def call(op: type[Op], *inputs: Any, **attrs: Any) -> Any:
    """Run `op` on tensors (and numbers, or None for absent inputs); record it if a gradient may be needed.

    Returns:
        a Tensor, or a tuple of Tensors for an op with several outputs.

    Raises:
        ShapeError, DTypeError, IndexRangeError, DimError: from the op's `infer`, with the shapes in the message.
        DeviceError: for tensors on different devices.
        ArgumentTypeError: for an operand of another type, or if none is a tensor.
    """
    if modes.autocast is not None:
        inputs = modes.autocast(op, inputs)
    arrays = []
    tracked = on_device = False
    for x in inputs:
        if isinstance(x, Tensor):
            array = x._array
            arrays.append(array)
            if array.__class__ is not ndarray:
                on_device = True
            if x._edge is not None or x._view is not None:
                tracked = True
        elif x is None or isinstance(x, NUMBERS):
            arrays.append(x)
        elif isinstance(x, Expr):  # within the formula of another operator
            return op.formula.function(*inputs, **attrs)
        else:
            refuse(op, inputs, x)
    tracked = tracked and modes.enabled and op.backward is not None
    if modes.tracer is None:
        kernel = op.kernels.get(arrays[0].__class__) or find_kernel(op, arrays)
    else:
        kernel, on_device = modes.tracer.kernel(op, inputs), True
    if on_device:
        check_one_device(op, arrays)
    try:
        result = kernel(*arrays, **attrs)
    except (ValueError, TypeError, IndexError):
        if kernel.__class__ is ufunc or op.view:
            op.infer(*arrays, **attrs)  # says more than NumPy
        raise
    if kernel.__class__ is ufunc and not result.flags.c_contiguous:
        result = np.ascontiguousarray(result)
    if not op.single:
        outputs = tuple([wrap(array if type(array) is ndarray else as_array(array)) for array in result])
        if op.view:
            parent = inputs[0]
            version = parent._shared_version()
            for output, (view, view_attrs) in zip(outputs, op.views(attrs), strict=True):
                output._version, output._view = version, (parent, view, view_attrs, version.value)
        if tracked:
            record(op, inputs, attrs, outputs)
        return outputs
    output = wrap(result if type(result) is ndarray else as_array(result))
    if op.view:
        parent = inputs[0]
        output._version = version = parent._shared_version()
        output._view = (parent, op, attrs, version.value)
    if tracked:
        record(op, inputs, attrs, (output,))
    return output


def record(op: type[Op], inputs: tuple, attrs: dict, outputs: tuple) -> None:
    """Put a node on the tape if any input requires grad."""
    edges = []
    requires_grad = False
    for x in inputs:
        edge = None
        if isinstance(x, Tensor):
            edge = x._edge if x._view is None else x._fresh_edge()
            if edge is not None:
                requires_grad = True
        edges.append(edge)
    if not requires_grad:
        return
    recorded = outputs[: -len(op.nondifferentiable)] if op.nondifferentiable else outputs
    node = Node(op, edges, attrs, recorded)
    for index, output in enumerate(recorded):
        output._edge = (node, index)
    if op.saves:
        node._saved = saved = []
        for position, needed_by in op.saved_inputs:
            x = inputs[position]
            if needed_by is not None and edges[needed_by] is None:
                saved.append(ABSENT)
            elif isinstance(x, Tensor):
                version = x._version
                saved.append((x, 0 if version is None else version.value, None))
            else:
                saved.append((x, None, None))
        for index in op.saved_outputs:  # by an alias without an edge: an edge back to this node would be a cycle
            alias, output = wrap(outputs[index]._array), outputs[index]
            alias._version = output._version = Version()
            saved.append((alias, 0, index))


def update(
    op: type[Op],
    *groups: list[Tensor | None],
    **attrs: Any,
) -> None:
    """Run an op that changes tensors in place, such as one update of an optimizer; nothing is recorded on the tape.

    Args:
        op: its `mutates` names the groups whose tensors the kernel changes.
        groups: lists of equal length, entry i of each belonging to parameter i; all on one device.
        attrs: for the kernel; those named in `op.per_parameter` are lists with one entry for each parameter. While a
            graph is recorded, what it has to look up at each replay is a `Scalar`.

    Raises:
        ShapeError: if one of the first group that it changes is an expanded view.
    """
    for x in groups[op.mutates[0]]:
        if not x._array.flags.writeable:
            refuse_shared_elements(op.function_name, x)
    if modes.tracer is not None:
        modes.tracer.update(op, groups, attrs)
    else:
        arrays = [[None if x is None else x._array for x in group] for group in groups]
        first = arrays[0][0]
        device = of_array(first)
        if device.is_global:
            first.update(op, arrays, attrs)
        else:
            run = kernel_of(device.type, op.__name__).run
            if modes.profiler is None:
                run(*arrays, **attrs)
            else:
                modes.profiler.call(op, run, arrays, attrs)
    for position in op.mutates:
        for x in groups[position]:
            if x is not None:
                (x._version or x._shared_version()).value += 1


def refuse_shared_elements(name: str, x: Tensor) -> None:
    """Raise ShapeError for a tensor that cannot be written to, such as an expanded view."""
    if not x._array.flags.writeable:
        if isinstance(x._array, BufferArray):
            raise DTypeError(
                f"{name}: got a tensor of tensor_buffer, which is never written to; expected one of numbers"
            )
        raise ShapeError(
            f"{name}: the tensor is an expanded or read-only view, its elements share memory; use x.clone() first"
        )


def find_kernel(op: type[Op], arrays: list) -> Callable:
    """What computes `op` on the device of the first array, kept in `op.kernels` for the next call."""
    for x in arrays:
        if is_array(x):
            if getattr(x, "is_symbolic", False) or isinstance(x, BufferArray):
                check_one_device(op, arrays)
            if op.view and not op.single:
                op.kernels[x.__class__] = several_views(op)
                return op.kernels[x.__class__]
            if hasattr(x, "kernel_for"):
                op.kernels[x.__class__] = x.kernel_for(op)
                return op.kernels[x.__class__]
            device = of_array(x).type
            kernel = kernel_of(device, op.__name__)
            if kernel is not None and kernel.ufunc is not None:  # the fast path: `call` does the rest
                op.kernels[x.__class__] = kernel.ufunc
            else:
                op.kernels[x.__class__] = kernel_on(op, device)
            return op.kernels[x.__class__]
    refuse(op, arrays, arrays[0])


def several_views(op: type[Op]) -> Callable:
    """What computes an `op` that makes several views: the kernels of these."""

    def run(x: Any, **attrs: Any) -> list:
        kernels = [
            (view.kernels.get(x.__class__) or find_kernel(view, [x]), of_view) for view, of_view in op.views(attrs)
        ]
        return [kernel(x, **of_view) for kernel, of_view in kernels]

    return run


def refuse(op: type[Op], inputs: Sequence, x: Any) -> NoReturn:
    """Refuse one of the inputs under the name that `infer` has for it, where x and y are the operands of functions."""
    position = next(i for i, value in enumerate(inputs) if value is x)
    names = op.parameters or list(inspect.signature(op.infer).parameters)
    name = names[min(position, len(names) - 1)]
    refuse_operand(x, op.function_name, parameter={"x": "input", "y": "other"}.get(name, name))


def kernel_on(op: type[Op], device: str) -> Callable:
    """A function `(*arrays, **attrs)` that checks the operands of `op`, allocates its outputs and computes them.

    Args:
        device: the device type, "cpu" or "cuda".

    Raises:
        DeviceError: if the op has no kernel there.
    """
    kernel = kernel_of(device, op.__name__)
    if kernel is None:
        raise DeviceError(f"{op.function_name}: no kernel for it on device {device}")
    if kernel.ufunc is not None:
        return partial(kernel.ufunc, order="C")  # NumPy refuses what `infer` does, and allocates
    if kernel.allocating is not None and getattr(op, "check", None) is None:  # a check looks at the values of each call
        return kernel.allocating(allocating(op, kernel.run))
    if not kernel.returns:
        return allocating(op, kernel.run) if device == "cpu" else allocating_on(op, kernel.run)
    if op.view and device == "cpu":
        return kernel.run  # as with ufuncs, `infer` only explains the error

    def run(*arrays, **attrs):
        op.infer(*arrays, **attrs)
        return kernel.run(*arrays, **attrs)

    return run


def allocating(op: type[Op], write: Callable) -> Callable:
    """Infer the outputs of `op`, allocate them on the CPU, and let the kernel write into them.

    The outputs follow from the shapes and dtypes of the operands: `infer` is asked once for each combination of them,
    unless it looks at values.
    """
    single, empty, looks_at_values = op.single, np.empty, op.checks_values in INFER_CHECKS

    @lru_cache(MOST_KNOWN, typed=True)
    def known(*operands, **attrs):
        layouts = [layout_of(*x) if x.__class__ is tuple else x for x in operands]
        has_half = any(x.__class__ is ndarray and x.itemsize == 2 for x in layouts)
        return op.infer(*layouts, **attrs), write if has_half else without_half(write)

    def run(*arrays, **attrs):
        outputs = None
        if not looks_at_values:
            operands = []
            for x in arrays:
                operands.append((x.shape, x.dtype) if x.__class__ is ndarray else x)
            try:
                outputs, kernel = known(*operands, **attrs)
            except TypeError:  # a list among the attributes has no hash, or `infer` refuses a dtype, and will again
                pass
        if outputs is None:
            outputs, kernel = op.infer(*arrays, **attrs), write
        out = empty(*outputs) if single else tuple([empty(shape, dtype) for shape, dtype in outputs])
        kernel(out, *arrays, **attrs)
        return out

    return run


def allocating_on(op: type[Op], write: Callable) -> Callable:
    """As `allocating`, on the device of the first array, or on the device that an attribute names."""

    def run(*arrays, **attrs):
        outputs = op.infer(*arrays, **attrs)
        device = of_array(next(x for x in arrays if is_array(x))) if arrays else attrs["device"]
        if op.single:
            out = memory.empty(*outputs, device)
        else:
            out = tuple([memory.empty(shape, dtype, device) for shape, dtype in outputs])
        write(out, *arrays, **attrs)
        return out

    return run


def run_kernel(op: type[Op], arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The results of the kernel for arrays on one device, without the tape: an array, or a tuple of them."""
    kernel = op.kernels.get(arrays[0].__class__) or find_kernel(op, arrays)
    result = kernel(*arrays, **attrs)
    if not op.single:
        return tuple([as_array(array) for array in result])
    result = as_array(result)
    return result if kernel.__class__ is not ufunc or result.flags.c_contiguous else np.ascontiguousarray(result)


def mixed(op: type[Op], devices: list) -> str:
    """The message for operands of which only some are global, or that are on different placements."""
    if all(device.is_global for device in devices):
        placements = ", ".join(f"{device} (positional {i})" for i, device in enumerate(devices))
        return (
            f"{op.function_name}: Expected all tensors to be on the same placement, but found at least two placements, "
            f"{placements}! Use x.to_global(placement=...)"
        )
    local_or_global = ", ".join("global" if device.is_global else "local" for device in devices)
    return (
        f"{op.function_name}: Got input tensors with inconsistent attributes! expected all global or all local, got "
        f"{local_or_global}: use x.to_global(placement, sbp) or x.to_local()"
    )


def is_array(x: Any) -> bool:
    """Whether an input is an array of some device; else it is a number or None."""
    return isinstance(x, ndarray) or hasattr(x, "device_index")


def as_array(result: Any) -> Any:
    """What a kernel returned as an array: kernels on the CPU may return NumPy scalars."""
    return result if hasattr(result, "device_index") else np.asarray(result)


def check_one_device(op: type[Op], arrays: list) -> None:
    """Refuse inputs on different devices, and tensor buffers, of which there are views only.

    Raises:
        DeviceError: naming them.
        DTypeError: for a tensor buffer.
    """
    devices = []
    for x in arrays:
        if is_array(x):
            if isinstance(x, BufferArray) and not op.view:
                raise DTypeError(
                    f"{op.function_name}: got a tensor of tensor_buffer; expected numbers: use "
                    "flow.tensor_buffer_to_tensor(x, dtype, instance_shape), or x.numpy()"
                )
            if modes.tracer is None and getattr(x, "is_symbolic", False):
                x.numpy()  # raises: it is left over from the recording of a graph
            devices.append(getattr(x, "placement", None) or of_array(x))
    for device in devices:
        if device is not devices[0] and device != devices[0]:
            if any(other.is_global for other in devices):
                raise PlacementError(mixed(op, devices))
            target = device if devices[0].type == "cpu" else devices[0]  # where the layer is, mostly
            raise DeviceError(
                f"{op.function_name}: got tensors on {devices[0]} and on {device}; expected all on one device: "
                f"move the other with x.to({str(target)!r})"
            )
