"""What a recorded step depends on besides its inputs, and how it is noticed that some of it has changed.

Flags such as `training`, the attributes of modules and of the graph (a dropout's `p`), parameters, buffers and
submodules, which parameters require grad, how memory lies and which tensors share it, hooks, the options and the state
tensors of optimizers, the default dtype and the default device are burned into a recording. A graph looks at all of
them before each call, in a few microseconds, and names what has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

from miniflow.device import get_default_device
from miniflow.dispatch.tape import hook_changes
from miniflow.dtype import get_default_dtype
from miniflow.formulas.scalar import is_number
from miniflow.graph.describe import meta, strides, tensor_text
from miniflow.graph.held import Attributes, Members, attributes, tensors
from miniflow.graph.overlap import sharing
from miniflow.nn.modules.module import Module
from miniflow.optim.optimizer import Optimizer
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph

# of a parameter group: looked up at each call, read for new states only, or compared apart
LIVE = ("params", "lr", "initial_lr", "lr_scale", "initial_accumulator_value")
NUMBER = re.compile(r"optimizer\.(\d+)\.(\d+)\.(\w+)")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Watch:
    """A picture of what a recording depends on.

    Args:
        graph: whose step was recorded.
        modules: module -> its dotted name, all modules that the graph has or has met.
        states: of the program, by name.
        aliases: pairs of tensors of one array, of which the program has the second.
        spent: module -> attributes that `build` looked at and then changed, with what they were.
        numbers: the names of the numbers that each call looks up: "optimizer.0.1.momentum" is one of a group.
    """

    def __init__(
        self,
        graph: Graph,
        modules: Mapping[Module, str],
        states: Mapping[str, Tensor],
        aliases: Iterable[tuple[Tensor, Tensor]] = (),
        spent: Mapping[Module, dict[str, Any]] | None = None,
        numbers: Iterable[str] = (),
    ):
        live = {match.groups() for name in numbers if (match := NUMBER.match(name))}
        self._default_dtype, self._default_device = get_default_dtype(), get_default_device()
        self._attributes, others = _watched_attributes(graph, modules, states.values(), spent or {})
        self._tensors = _Tensors(states, aliases, others)
        self._optimizers = [
            _OptimizerWatch(o, {(int(i), name) for k, i, name in live if k == str(number)})
            for number, o in enumerate(graph._optimizers)
        ]
        self._hook_number = list(hook_changes)
        self._modules = list(modules)
        self._hooks = self._hooks_now()

    def is_same(self) -> bool:
        """Whether nothing has changed. It is asked before each call and has to be fast."""
        return (
            self._tensors.is_same()
            and self._attributes.is_same()
            and all([optimizer.is_same() for optimizer in self._optimizers])
            and (self._hook_number == list(hook_changes) or self._has_same_hooks())
            and get_default_dtype() is self._default_dtype
            and get_default_device() is self._default_device
        )

    def is_obsolete(self) -> bool:
        """Whether the recording can hardly fit again: it was of one call, other modules, devices, dtypes or states."""
        return (
            self._attributes.is_spent()
            or not self._attributes.members.is_same()
            or not self._tensors.has_same_layout()
            or not all(optimizer.has_same_state() for optimizer in self._optimizers)
        )

    def frozen(self) -> list[str]:
        """The names of attributes that `build` looks at and changes whenever it is recorded."""
        return self._attributes.frozen()

    def differences(self) -> list[str]:
        """What has changed, in words."""
        found = [*self._attributes.differences(), *self._attributes.members.differences()]
        if not self._has_same_hooks():
            found.append("the hooks of a module or a parameter")
        found += self._tensors.differences()
        for optimizer in self._optimizers:
            found += optimizer.differences()
        if (now := get_default_dtype()) is not self._default_dtype:
            found.append(f"the default dtype is {now}, was {self._default_dtype}")
        if (now := get_default_device()) is not self._default_device:
            found.append(f"the default device is {now}, was {self._default_device}")
        return found

    def _hooks_now(self) -> list[list[Any]]:
        """The hooks of modules, and the entries of the hooks of tensors."""
        nodes = [None if tensor._edge is None else tensor._edge[0] for tensor in self._tensors.all]
        of_tensors = [[*(getattr(node, "hooks", None) or ()), *(getattr(node, "after", None) or ())] for node in nodes]
        return [list(vars(module)[table]) for module in self._modules for table in HOOKS] + of_tensors

    def _has_same_hooks(self) -> bool:
        for before, now in zip(self._hooks, self._hooks_now(), strict=True):
            if len(before) != len(now) or not all(map(is_, before, now)):
                return False
        self._hook_number = list(hook_changes)
        return True


def _watched_attributes(
    graph: Graph, modules: Mapping[Module, str], states: Iterable[Tensor], spent: Mapping[Module, dict[str, Any]]
) -> tuple[Attributes, list[Tensor]]:
    """The attributes of modules and graph, and the tensors among them that the recording read."""
    arrays = {id(tensor._array) for tensor in states}
    owners = {**modules, graph: graph.name}
    read = [tensor for owner in owners for tensor in tensors(attributes(owner)) if id(tensor._array) in arrays]
    return Attributes(owners, Members(modules), frozenset(map(id, read)), graph._written, spent), read


class _Tensors:
    """The states of a program: whether they require grad, how their memory lies, and which of them share it."""

    def __init__(
        self, states: Mapping[str, Tensor], aliases: Iterable[tuple[Tensor, Tensor]], others: Iterable[Tensor]
    ):
        self._names = list(states)
        self.all = list(states.values())
        known = set(map(id, self.all))
        for tensor in (*[tensor for pair in aliases for tensor in pair], *others):
            if id(tensor) not in known:
                known.add(id(tensor))
                self.all.append(tensor)
                self._names.append("a tensor that shares memory with another")
        self._edges = [tensor._edge for tensor in self.all]
        self._wants = [edge is not None for edge in self._edges]
        self._arrays = [tensor._array for tensor in self.all]
        self._metas = list(map(meta, self._arrays))
        self._strides = list(map(strides, self._arrays))
        self._shared = _first_sharing(self._arrays)

    def is_same(self) -> bool:
        """Whether nothing has changed but where the memory is."""
        return ([tensor._edge for tensor in self.all] == self._edges or self._has_same_edges()) and (
            all(map(is_, [tensor._array for tensor in self.all], self._arrays)) or self._has_same_arrays()
        )

    def _has_same_edges(self) -> bool:
        edges = [tensor._edge for tensor in self.all]
        if [edge is not None for edge in edges] != self._wants:
            return False
        self._edges = edges
        return True

    def _has_same_arrays(self) -> bool:
        if not self.has_same_layout():
            return False
        self._arrays = [tensor._array for tensor in self.all]  # other memory of the same kind: the replay goes there
        return True

    def has_same_layout(self) -> bool:
        """Whether shapes, dtypes, devices and strides are as they were, and the same tensors share memory."""
        arrays = [tensor._array for tensor in self.all]
        return (
            list(map(meta, arrays)) == self._metas
            and list(map(strides, arrays)) == self._strides
            and _first_sharing(arrays) == self._shared
        )

    def differences(self) -> Iterator[str]:
        """What has changed, in words."""
        shared = _first_sharing([tensor._array for tensor in self.all])
        for i, (name, tensor) in enumerate(zip(self._names, self.all, strict=True)):
            if tensor.requires_grad != self._wants[i]:
                yield f"{name} has requires_grad={tensor.requires_grad}, had {self._wants[i]}"
            if (now := meta(tensor._array)) != self._metas[i]:
                yield f"{name} is {tensor_text(now)}, was {tensor_text(self._metas[i])}"
            elif (steps := strides(tensor._array)) != self._strides[i]:
                yield f"{name} has strides of {steps} bytes, had {self._strides[i]}"
            if shared[i] != self._shared[i]:
                first = self._names[min(shared[i], self._shared[i])]
                yield f"{name} {'shares memory' if shared[i] < i else 'no longer shares memory'} with {first}"


def _first_sharing(arrays: list[Any]) -> list[int]:
    """For each array, the position of the first with which it has elements in common."""
    first = list(range(len(arrays)))
    for pair in sharing(dict(enumerate(arrays))):
        first[max(pair)] = min(first[max(pair)], *pair)
    return first


class _OptimizerWatch:
    """The options and the state tensors of an optimizer; `live` are the options whose numbers each call looks up."""

    def __init__(self, optimizer: Optimizer, live: set[tuple[int, str]]):
        self.optimizer, self._live = optimizer, live
        self._state = state = optimizer.state
        self._groups = [copied(group) for group in optimizer.param_groups]
        self._params = [group["params"] for group in self._groups]
        self._entries = [(p, state.get(p)) for params in self._params for p in params]
        entries = [entry for _, entry in self._entries if entry]
        self._names = [tuple(entry) for entry in entries]
        named = [[name for name, value in entry.items() if isinstance(value, Tensor)] for entry in entries]
        self._getters = [
            (itemgetter(*names, names[0]), entry) for names, entry in zip(named, entries, strict=True) if names
        ]
        self._tensors = self._tensors_now()
        self._note()

    def _note(self) -> None:
        self._all_entries = list(self._state.values())
        self._sizes = list(map(len, self._all_entries))

    def _tensors_now(self) -> list[Tensor]:
        return [tensor for getter, entry in self._getters for tensor in getter(entry)]

    def is_same(self) -> bool:
        """Whether nothing has changed but what is looked up at each call."""
        return (self._has_untouched_state() or self.has_same_state()) and self._has_same_groups()

    def _has_untouched_state(self) -> bool:
        """Whether nothing at all was added to the state, or taken from it."""
        state = self.optimizer.state
        try:
            return (
                state is self._state
                and len(state) == len(self._all_entries)
                and all(map(is_, state.values(), self._all_entries))
                and list(map(len, self._all_entries)) == self._sizes
                and all(map(is_, self._tensors_now(), self._tensors))
            )
        except KeyError:  # something was deleted
            return False

    def has_same_state(self) -> bool:
        """Whether the state of the parameters consists of the same tensors."""
        state = self.optimizer.state
        entries = [entry for _, entry in self._entries if entry]
        if state is not self._state or not all([state.get(p) is entry for p, entry in self._entries]):
            return False
        if list(map(tuple, entries)) != self._names or not all(map(is_, self._tensors_now(), self._tensors)):
            return False
        self._note()
        return True

    def _has_same_groups(self) -> bool:
        groups = self.optimizer.param_groups
        if len(groups) != len(self._groups):
            return False
        for i, (group, before, params) in enumerate(zip(groups, self._groups, self._params, strict=True)):
            now = group["params"]
            if len(now) != len(params) or not all(map(is_, now, params)):
                return False
            before["params"], before["lr"] = now, group.get("lr")
            if group != before:
                if any(self._option_differences(i, before, group)):
                    return False
                before.update(group)
        return True

    def differences(self) -> Iterator[str]:
        """What has changed, in words."""
        name, groups = type(self.optimizer).__name__, self.optimizer.param_groups
        if self.optimizer.state is not self._state:
            yield f"the state of {name} was replaced"
        elif not self.has_same_state():
            yield f"the state of {name} for a parameter was replaced"
        if len(groups) != len(self._groups):
            yield f"{name} has {len(groups)} parameter groups, had {len(self._groups)}"
        for i, (before, group, params) in enumerate(zip(self._groups, groups, self._params, strict=False)):
            now = group["params"]
            if len(now) != len(params) or not all(map(is_, now, params)):
                yield f"the parameters of group {i} of {name}, {len(now)} now and {len(params)} before"
            yield from self._option_differences(i, before, group)

    def _option_differences(self, i: int, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
        for key in {**before, **now}:
            old, new = before.get(key), now.get(key)
            if key not in LIVE and old != new and ((i, key) not in self._live or sign(old) != sign(new)):
                yield f"{key} of group {i} of {type(self.optimizer).__name__} is {new}, was {old}"


def sign(value: Any) -> Any:
    """What a recording depends on of a number that each call looks up: updates leave out terms with a factor of 0."""
    if isinstance(value, tuple | list):
        return tuple(map(sign, value))
    return (value > 0, value == 0) if is_number(value) else value


def copied(group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group with a list of its own."""
    return {**group, "params": list(group["params"])}
