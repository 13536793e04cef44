"""The tape: what a dispatched op leaves behind so that its gradient can be computed later.

Every recorded op leaves one `Node`, numbered in the order of recording. A node's *edges* lead to the nodes that made
its inputs; a leaf (a tensor that requires grad and that no op made) has a `Leaf` node of its own. Since a consumer is
always newer than what it consumes, walking nodes newest first meets every node after all of its consumers:
`autograd.engine` needs no other order.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from miniflow.dispatch.context_decorator import ContextDecorator
from miniflow.errors import AutogradError

if TYPE_CHECKING:
    from miniflow.tensor import Tensor

sequence = itertools.count(1).__next__
latest_change: deque[int] = deque(maxlen=1)  # holds another number after each `note_change`
_change_numbers = itertools.count(1)


def note_change() -> None:
    """Note that an attribute of a module or graph, an option or a hook was changed: recorded graphs look at theirs."""
    latest_change.append(next(_change_numbers))


class _Modes(threading.local):
    """State of this thread that every op call reads.

    Attributes:
        enabled: whether ops are recorded on the tape.
        autocast: None, or a function of (op, inputs) that casts the inputs of an op (see `amp`).
        tracer: None, or the `graph.trace.Tracer` of the nn.Graph that is being recorded, which sees calls of ops, of
            modules and of backward.
        global_layout: None, or the placement and SBP of `global_mode`.
        profiler: None, or the `profiler.profile` that measures what this thread does.
    """

    enabled = True
    autocast: Callable | None = None
    tracer: Any = None
    global_layout: tuple | None = None
    profiler: Any = None


modes = _Modes()


def profiled(name: Callable[[Any], str]) -> Callable[[Callable], Callable]:
    """Decorate a method that is a range of a profile; `name` takes its object."""

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if modes.profiler is None:
                return method(self, *args, **kwargs)
            with modes.profiler.range(name(self)):
                return method(self, *args, **kwargs)

        return run

    return decorate


def is_grad_enabled() -> bool:
    """Whether ops are being recorded in this thread."""
    return modes.enabled


class _Mode(ContextDecorator):
    """A grad mode for a `with` block, which may be entered again while it is active, or for a decorated function."""

    mode: bool

    def __new__(cls, function: Callable | None = None):
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Callable | None = None):
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(modes.enabled)
        modes.enabled = self.mode

    def __exit__(self, *_: object) -> None:
        modes.enabled = self._previous.pop()


class no_grad(_Mode):
    """Record nothing inside: `with no_grad():`, `@no_grad()` or `@no_grad`. As `torch.no_grad`."""

    mode = False


class enable_grad(_Mode):
    """Record inside, also within `no_grad`. As `torch.enable_grad`."""

    mode = True


class inference_mode(_Mode):
    """As `no_grad`, or with `mode=False` as `enable_grad`. As `torch.inference_mode`, which also refuses to record
    what was computed inside when it is used outside."""

    def __new__(cls, mode: bool | Callable = True):
        return object.__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: bool = True):
        self.mode = not mode
        self._previous = []

    def clone(self) -> inference_mode:
        return inference_mode(not self.mode)


class set_grad_enabled(_Mode):
    """Switch recording on or off: at once, for a `with` block, or for a decorated function. As
    `torch.set_grad_enabled`.

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __new__(cls, mode: bool):
        return object.__new__(cls)

    def __init__(self, mode: bool):
        self.mode = bool(mode)
        self._previous = [modes.enabled]
        modes.enabled = self.mode

    def clone(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        modes.enabled = self.mode

    def __call__(self, function: Callable) -> Callable:
        modes.enabled = self._previous.pop()  # used as a decorator: the switch belongs to the calls, not to now
        return super().__call__(function)


class Version:
    """Counts in-place writes to one piece of memory; shared by a tensor, its views and its detached aliases."""

    value = 0


class Leaf:
    """The node of a leaf that requires grad; gradients arriving here are added to `tensor.grad`."""

    __slots__ = ("tensor", "sequence", "shapes", "dtypes", "sbps", "hooks", "after")
    edges = ()

    def __init__(self, tensor: Tensor):
        self.tensor = weakref.ref(tensor)
        self.sequence = sequence()
        self.shapes = (tensor._array.shape,)
        self.dtypes = (tensor._array.dtype,)
        self.sbps = (getattr(tensor._array, "sbp", ()),)
        self.hooks: list[tuple[int, Callable]] | None = None
        self.after: list[tuple[int, Callable]] | None = None  # hooks that run when `tensor.grad` is complete


FREED: Any = object()
ABSENT = (None, None, None)


class Node:
    """One recorded op: the `ctx` that its `backward` receives.

    Attributes:
        op: the op class.
        edges: for each input `(node, output index)` of what made it, or None where no gradient is wanted.
        attrs: the attributes that the op was called with.
        needs: for each input something true if `backward` has to compute its gradient; set before each backward.
        shapes, dtypes: of the outputs, so that cotangents can be checked.
        sbps: how those are divided that are global; () for others.
        sequence: the position in the order of recording.
    """

    __slots__ = (
        "op", "edges", "attrs", "needs", "shapes", "dtypes", "sbps", "sequence", "hooks", "_saved", "__weakref__"
    )  # fmt: skip

    def __init__(self, op: Any, edges: list, attrs: dict, outputs: tuple):
        self.op = op
        self.edges = edges
        self.attrs = attrs
        if len(outputs) == 1:
            array = outputs[0]._array
            self.shapes, self.dtypes, self.sbps = (array.shape,), (array.dtype,), (getattr(array, "sbp", ()),)
        else:
            self.shapes = tuple([y._array.shape for y in outputs])
            self.dtypes = tuple([y._array.dtype for y in outputs])
            self.sbps = tuple([getattr(y._array, "sbp", ()) for y in outputs])
        self.sequence = sequence()
        self.hooks = None
        # [(value, version when saved, output index or None)], see dispatcher.record; or a function that puts it here
        self._saved = None

    @property
    def name(self) -> str:
        """The op's name as printed in `grad_fn`: `<add_backward>`."""
        return f"{self.op.function_name}_backward"

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def next_functions(self) -> tuple:
        """The edges under PyTorch's name: `(node, output index)` for each input, `(None, 0)` where there is none."""
        return tuple(edge or (None, 0) for edge in self.edges)

    @property
    def saved(self) -> tuple:
        """The values that the op's `saves` names, in that order.

        Raises:
            AutogradError: if they were freed by an earlier backward, or changed in place since they were saved.
        """
        while type(self._saved) is not list:
            if self._saved is FREED:
                raise AutogradError(
                    f"{self.op.function_name}: backward through a graph whose saved tensors were freed by an earlier "
                    "backward. Specify retain_graph=True when calling .backward() or autograd.grad() the first time."
                )
            self._saved()
        values = []
        for value, version, index in self._saved:
            if version is not None:
                if (0 if value._version is None else value._version.value) != version:
                    self._refuse_changed(value, version)
                if index is not None:
                    value = value._wrap(value._array)
                    if index < len(self.shapes):  # saved statistics are not differentiable
                        value._edge = (self, index)
            values.append(value)
        return tuple(values)

    def _refuse_changed(self, value: Tensor, version: int) -> None:
        raise AutogradError(
            f"{self.op.function_name}: a tensor of shape {tuple(value.shape)} that its backward needs was changed "
            f"by an in-place operation after it was saved (version {value.version}, expected {version}). Change a "
            "copy (x.clone()) or use the out-of-place operation."
        )


def ancestors(roots: Iterable[Node | Leaf]) -> list[Node | Leaf]:
    """These nodes and all that their inputs come from, newest first: in the order in which backward visits them."""
    visited, pending = set(), list(roots)
    while pending:
        node = pending.pop()
        if node not in visited:
            visited.add(node)
            pending += [edge[0] for edge in node.edges if edge is not None]
    return sorted(visited, key=lambda node: -node.sequence)
