"""Guards: what a recorded step depends on besides its inputs, and how it is noticed that some of it has changed.

The attributes that `build` read, as they were when it first did; the flags `training`; parameters, buffers and
submodules; which parameters require grad, how memory lies and which tensors share it; hooks; the options and the state
tensors of optimizers; the default dtype and the default device. Before each call a graph asks one counter of the
process whether an attribute or a hook was set anywhere, and compares by identity the attributes that `build` read, with
what is in lists, dicts and arrays, and tensors; only where something has moved it compares all, by value.

What is not looked at is burned in as it was while recording: global variables and closures, class attributes, random
numbers of Python and NumPy, the time, files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

from miniflow.device import get_default_device
from miniflow.dispatch.tape import latest_change
from miniflow.dtype import get_default_dtype
from miniflow.formulas.scalar import is_number
from miniflow.graph.accesses import value_of
from miniflow.graph.describe import meta, strides, tensor_text
from miniflow.graph.overlap import sharing
from miniflow.graph.snapshot import ABSENT, Snapshot
from miniflow.optim.optimizer import Optimizer
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph
    from miniflow.graph.recording import Recording

# of a parameter group: looked up at each call, read for new states only, or compared apart
LIVE = ("params", "lr", "initial_lr", "lr_scale", "initial_accumulator_value")
NUMBER = re.compile(r"optimizer\.(\d+)\.(\d+)\.(\w+)")  # among the numbers that each call looks up, one of a group
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
TABLES = ("_parameters", "_buffers", "_modules")


class Guards:
    """What a recording depends on.

    Args:
        graph: whose step was recorded.
        recording: of it.
        states: of the program, by name.
        options: those with which it was compiled, `graph._options_key()`.
    """

    def __init__(self, graph: Graph, recording: Recording, states: Mapping[str, Tensor], options: tuple):
        self._graph, self._options = graph, options
        self._modules, self._names = recording.modules, recording.names
        reads = recording.accesses.reads
        known = {owner for owner, key, _ in reads if key == "training"}
        modes = [(m, "training", Snapshot(m.training)) for m in self._modules if m not in known]
        self._read = [*reads, *modes]
        arrays = {id(tensor._array) for tensor in states.values()}
        inside = [tensor for *_, snapshot in self._read for tensor in snapshot.tensors if id(tensor._array) in arrays]
        self._keeping, self._counting = recording.accesses.keeping, frozenset(map(id, inside))
        others = chain(*recording.program.aliases, inside)
        named = {id(t): (t, "a tensor that shares memory with another") for t in others}
        named |= {id(t): (t, name) for name, t in states.items()}
        self._tensors, self._tensor_names = map(list, zip(*named.values(), strict=True)) if named else ([], [])
        self._before = self._layouts()
        numbers = {match.groups() for name in recording.program.scalars() if (match := NUMBER.match(name))}
        self._optimizers = [
            _OptimizerGuard(optimizer, {(int(i), name) for k, i, name in numbers if int(k) == number})
            for number, optimizer in enumerate(graph._optimizers)
        ]
        self._hooks, self._defaults = self._hooks_now(), _defaults()
        tables = [(path, vars(module)[name]) for module, path in self._modules.items() for name in TABLES]
        self._members = [(path, table, dict(table)) for path, table in tables]
        self._count: list[int] | None = None
        self._note()
        self.is_same()  # notes the count, unless another thread has changed something meanwhile

    def _note(self) -> None:
        """Lay out what is compared by identity: it is like what was recorded, and counts from now on."""
        self._edges, self._arrays = [t._edge for t in self._tensors], [t._array for t in self._tensors]
        self._places = [(object.__getattribute__(owner, "__dict__"), key) for owner, key, _ in self._read]
        self._values = [snapshot.value for *_, snapshot in self._read]
        self._mutable = list(
            {id(part.container): part for *_, snapshot in self._read for part in snapshot.mutable()}.values()
        )

    def is_same(self) -> bool:
        """Whether nothing has changed. It is asked before each call and has to be fast."""
        count = list(latest_change)
        if not self._is_identical() or count != self._count and any(self._counted_differences()):
            if any(self._differences()):
                return False
            changed = {(owner, key): Snapshot(value) for owner, key, _, value in self._changes(by_value=False)}
            self._read = [(owner, key, changed.get((owner, key), snapshot)) for owner, key, snapshot in self._read]
            self._note()
        self._count = count
        return all([optimizer.is_same() for optimizer in self._optimizers])

    def _is_identical(self) -> bool:
        return (
            [tensor._edge for tensor in self._tensors] == self._edges
            and all(map(is_, [tensor._array for tensor in self._tensors], self._arrays))
            and all(map(is_, [attributes.get(key, ABSENT) for attributes, key in self._places], self._values))
            and all([part.is_unchanged() for part in self._mutable])
            and _defaults() == self._defaults
        )

    def is_obsolete(self) -> bool:
        """Whether the recording can hardly fit again: it was of other modules, devices, dtypes or states."""
        has_same_state = all([optimizer.has_same_state() for optimizer in self._optimizers])
        return any(self._member_differences()) or self._layouts() != self._before or not has_same_state

    def differences(self) -> list[str]:
        """What has changed, in words."""
        return list(chain(self._differences(), *[optimizer.differences() for optimizer in self._optimizers]))

    def _differences(self) -> Iterator[str]:
        """What has changed but optimizers, in words."""
        yield from self._attribute_differences()
        yield from self._counted_differences()
        yield from self._tensor_differences()
        for name, now, before in zip(("dtype", "device"), _defaults(), self._defaults, strict=True):
            if now != before:
                yield f"the default {name} is {now}, was {before}"

    def _counted_differences(self) -> Iterator[str]:
        """What has changed of that which the counter tells."""
        yield from self._member_differences()
        if not _is_same(self._hooks_now(), self._hooks):
            yield "the hooks of a module or a parameter"
        if self._graph._options_key() != self._options:
            yield "an option of its config"

    # attributes, members and hooks

    def _changes(self, by_value: bool) -> Iterator[tuple[Any, str, Snapshot, Any]]:
        """Module or graph, name, old contents and new value of attributes that are not the same, or not equal."""
        for owner, key, snapshot in self._read:
            now = value_of(owner, key)
            if now is not snapshot.value or not snapshot.is_unchanged():
                counting = self._counting if (owner, key) in self._keeping else None
                if not (by_value and snapshot.is_like(now, counting)):
                    yield owner, key, snapshot, now

    def _attribute_differences(self) -> Iterator[str]:
        told: set[str] = set()
        for owner, key, before, value in sorted(self._changes(by_value=True), key=lambda change: self._path(change[0])):
            path, now = self._path(owner), Snapshot(value)
            if key == "training":
                if not any(path.startswith(f"{other}.") for other in told):  # what holds it says it too
                    yield f"{path} was in {_mode(before)} mode, is in {_mode(now)} mode"
                told.add(path)
            elif value is ABSENT or before.value is ABSENT:
                yield f"{path}.{key} {'was deleted' if value is ABSENT else 'is new'}"
            elif f"{now!s:.80}" != f"{before!s:.80}":
                yield f"{path}.{key} is {now!s:.80}, was {before!s:.80}"
            else:
                yield f"{path}.{key} {'holds other values' if before.value is value else 'is another object'}"

    def _path(self, owner: Any) -> str:
        return self._names.get(owner, type(owner).__name__)

    def _member_differences(self) -> Iterator[str]:
        for path, now, before in self._members:
            if list(now) == list(before) and all(map(is_, now.values(), before.values())):
                continue
            for key in {**before, **now}:
                if key not in before or key not in now:
                    yield f"{path}.{key} {'is new' if key in now else 'was deleted'}"
                elif now[key] is not before[key]:
                    yield f"the attribute {key!r} of a module is another object"
            if now.keys() == before.keys() and list(now) != list(before):
                yield "the order of the members of a module"

    def _hooks_now(self) -> list[Any]:
        """The hooks of modules, and the entries of the hooks of tensors, with None after those of each."""
        nodes = [None if tensor._edge is None else tensor._edge[0] for tensor in self._tensors]
        of_tensors = [getattr(node, name, None) or () for node in nodes for name in ("hooks", "after")]
        of_modules = [vars(module)[table] for module in self._modules for table in HOOKS]
        return [hook for hooks in of_modules + of_tensors for hook in (*hooks, None)]

    # tensors

    def _layouts(self) -> list[tuple]:
        """For each tensor shape, dtype and device, strides, and the first with which it has elements in common."""
        arrays = [tensor._array for tensor in self._tensors]
        first = list(range(len(arrays)))
        for pair in sharing(dict(enumerate(arrays))):
            first[max(pair)] = min(first[max(pair)], *pair)
        return [(meta(array), strides(array), self._tensor_names[i]) for i, array in zip(first, arrays, strict=True)]

    def _tensor_differences(self) -> Iterator[str]:
        has_moved = not all(map(is_, [tensor._array for tensor in self._tensors], self._arrays))
        layouts = zip(self._before, self._layouts() if has_moved else self._before, strict=True)
        tensors = zip(self._tensor_names, self._tensors, self._edges, layouts, strict=True)
        for name, tensor, edge, ((was, were, other), (now, steps, first)) in tensors:
            if tensor.requires_grad != (edge is not None):
                yield f"{name} has requires_grad={tensor.requires_grad}, had {edge is not None}"
            if now != was:
                yield f"{name} is {tensor_text(now)}, was {tensor_text(was)}"
            elif steps != were:
                yield f"{name} has strides of {steps} bytes, had {were}"
            if first != other:
                yield f"{name} lies in the memory of {first}, lay in that of {other}"


class _OptimizerGuard:
    """The options and the state tensors of an optimizer; `live` are the options whose numbers each call looks up."""

    def __init__(self, optimizer: Optimizer, live: set[tuple[int, str]]):
        self.optimizer, self._live = optimizer, live
        self._params = [list(group["params"]) for group in optimizer.param_groups]
        self._options, self._state, self._entries = self._options_now(), optimizer.state, self._entries_now()
        self._tensors = [
            (entry, name, tensor)
            for entry in filter(None, self._entries)
            for name, tensor in entry.items()
            if isinstance(tensor, Tensor)
        ]

    def is_same(self) -> bool:
        """Whether nothing has changed but what is looked up at each call."""
        options = self._options_now()
        params = [group["params"] for group in self.optimizer.param_groups]
        if self.has_same_state() and options == self._options and all(map(_is_same, params, self._params)):
            return True
        if any(self.differences()):
            return False
        self._options = options
        return True

    def _options_now(self) -> list[dict[str, Any]]:
        return [{**group, "params": None} for group in self.optimizer.param_groups]

    def _entries_now(self) -> list[dict[str, Any] | None]:
        return [self.optimizer.state.get(p) for params in self._params for p in params]

    def has_same_state(self) -> bool:
        """Whether the state of the parameters has the same tensors; other recordings may have added some."""
        return (
            self.optimizer.state is self._state
            and _is_same(self._entries_now(), self._entries)
            and all([entry.get(name) is tensor for entry, name, tensor in self._tensors])
        )

    def differences(self) -> Iterator[str]:
        """What has changed, in words."""
        name, groups, options = type(self.optimizer).__name__, self.optimizer.param_groups, self._options_now()
        if not self.has_same_state():
            whole = self.optimizer.state is not self._state
            yield f"the state of {name}{'' if whole else ' for a parameter'} was replaced"
        if len(groups) != len(self._params):
            yield f"{name} has {len(groups)} parameter groups, had {len(self._params)}"
        for i, (group, params) in enumerate(zip(groups, self._params, strict=False)):
            if not _is_same(group["params"], params):
                yield f"the parameters of group {i} of {name}, {len(group['params'])} now and {len(params)} before"
            for key in {**self._options[i], **options[i]}:
                old, new = self._options[i].get(key), options[i].get(key)
                if key not in LIVE and old != new and ((i, key) not in self._live or sign(old) != sign(new)):
                    yield f"{key} of group {i} of {name} is {new}, was {old}"


def sign(value: Any) -> Any:
    """What a recording depends on of a number that each call looks up: updates leave out terms with a factor of 0."""
    if isinstance(value, tuple | list):
        return tuple(map(sign, value))
    return (value > 0, value == 0) if is_number(value) else value


def _is_same(some: list, others: list) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _defaults() -> tuple[Any, Any]:
    return get_default_dtype(), get_default_device()


def _mode(training: Snapshot) -> str:
    return "training" if training.value else "evaluation"
