"""What a recorded step depends on besides its inputs, and how it is noticed that some of it has changed.

Flags such as `training`, numbers and strings among the attributes of modules (a dropout's `p`), which parameters
require grad, the options of optimizers and the modules themselves are burned into a recording. A graph looks at all of
them before each call, in a few microseconds, and names what has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from typing import Any

from miniflow.graph.describe import meta, tensor_text
from miniflow.nn.modules.module import Module
from miniflow.optim.optimizer import Optimizer
from miniflow.tape import hook_changes
from miniflow.tensor import Tensor

LIVE = ("params", "lr", "initial_lr", "lr_scale")  # of a parameter group: looked up at each call, or compared apart
TABLES = ("_parameters", "_buffers", "_modules")
SIMPLE = (bool, int, float, str, tuple, type(None))  # attributes whose values Python code may have branched on
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Watch:
    """A picture of what a recording depends on.

    Args:
        modules: module -> its dotted name, all modules that the graph has or has met.
        optimizers: of the graph.
        tensors: the states of the program, by name.
    """

    def __init__(self, modules: Mapping[Module, str], optimizers: list[Optimizer], tensors: Mapping[str, Tensor]):
        self.modules = dict(modules)
        self.optimizers = list(optimizers)
        self.names = list(tensors)
        self.tensors = list(tensors.values())
        self._places = [(vars(m)[table], key) for m in self.modules for table in TABLES for key in vars(m)[table]]
        self._members = [table[key] for table, key in self._places]
        self._training = [bool(m.training) for m in self.modules]
        self._attributes = [
            (m, key)
            for m in self.modules
            for key, value in vars(m).items()
            if isinstance(value, SIMPLE) and key[0] != "_"
        ]
        self._all_places = [*self._places, *[(vars(m), key) for m, key in self._attributes]]
        self._all_members = [table[key] for table, key in self._all_places]
        self._edges = [tensor._edge for tensor in self.tensors]
        self._wants = [edge is not None for edge in self._edges]
        self._arrays = [tensor._array for tensor in self.tensors]
        self._metas = [meta(array) for array in self._arrays]
        self._states = [optimizer.state for optimizer in self.optimizers]
        self._groups = [[copied(group) for group in optimizer.param_groups] for optimizer in self.optimizers]
        self._hook_number = list(hook_changes)
        self._hooks = _hook_ids(self.modules, self.tensors)

    def is_same(self) -> bool:
        """Whether nothing has changed. It is asked before each call and has to be fast."""
        try:
            return (
                all(map(is_, [table[key] for table, key in self._all_places], self._all_members))
                and ([tensor._edge for tensor in self.tensors] == self._edges or self._has_same_edges())
                and (all(map(is_, [t._array for t in self.tensors], self._arrays)) or self._has_same_arrays())
                and self._has_same_optimizers()
                and (self._hook_number == list(hook_changes) or self._has_same_hooks())
            )
        except KeyError:  # something was deleted
            return False

    def _has_same_edges(self) -> bool:
        edges = [tensor._edge for tensor in self.tensors]
        if [edge is not None for edge in edges] != self._wants:
            return False
        self._edges = edges
        return True

    def _has_same_arrays(self) -> bool:
        arrays = [tensor._array for tensor in self.tensors]
        if [meta(array) for array in arrays] != self._metas:
            return False
        self._arrays = arrays  # other memory of the same kind: the replay goes there
        return True

    def _has_same_optimizers(self) -> bool:
        for optimizer, state, known in zip(self.optimizers, self._states, self._groups, strict=True):
            groups = optimizer.param_groups
            if optimizer.state is not state or len(groups) != len(known):
                return False
            for group, before in zip(groups, known, strict=True):
                before["lr"] = group["lr"]
                if group != before and any(_option_differences("", before, group)):
                    return False
        return True

    def _has_same_hooks(self) -> bool:
        if _hook_ids(self.modules, self.tensors) != self._hooks:
            return False
        self._hook_number = list(hook_changes)
        return True

    def is_obsolete(self) -> bool:
        """Whether the recording can hardly fit again: it was of other modules, devices, dtypes or optimizer states."""
        return (
            any(table.get(key) is not member for (table, key), member in zip(self._places, self._members, strict=True))
            or [meta(tensor._array) for tensor in self.tensors] != self._metas
            or any(o.state is not state for o, state in zip(self.optimizers, self._states, strict=True))
        )

    def differences(self) -> list[str]:
        """What has changed, in words."""
        return [*self._module_differences(), *self._tensor_differences(), *self._optimizer_differences()]

    def _module_differences(self) -> Iterator[str]:
        told: set[str] = set()
        for (module, name), training in zip(self.modules.items(), self._training, strict=True):
            if module.training != training:
                if not any(name.startswith(f"{other}.") for other in told):  # what holds it says it too
                    yield f"{name} was in {_mode(training)} mode, is in {_mode(module.training)} mode"
                told.add(name)
        values = self._all_members[len(self._places) :]
        for (module, key), value in zip(self._attributes, values, strict=True):
            if key != "training" and (now := vars(module).get(key)) is not value:
                yield f"{self.modules[module]}.{key} is {now!r}, was {value!r}"
        for (table, key), member in zip(self._places, self._members, strict=True):
            if table.get(key) is not member:
                yield f"the attribute {key!r} of a module is another object"
        if _hook_ids(self.modules, self.tensors) != self._hooks:
            yield "the hooks of a module or a parameter"

    def _tensor_differences(self) -> Iterator[str]:
        for name, tensor, wanted, before in zip(self.names, self.tensors, self._wants, self._metas, strict=True):
            if tensor.requires_grad != wanted:
                yield f"{name} has requires_grad={tensor.requires_grad}, had {wanted}"
            if (now := meta(tensor._array)) != before:
                yield f"{name} is {tensor_text(now)}, was {tensor_text(before)}"

    def _optimizer_differences(self) -> Iterator[str]:
        for optimizer, groups, state in zip(self.optimizers, self._groups, self._states, strict=True):
            name = type(optimizer).__name__
            if optimizer.state is not state:
                yield f"the state of {name} was replaced"
            if len(groups) != len(optimizer.param_groups):
                yield f"{name} has {len(optimizer.param_groups)} parameter groups, had {len(groups)}"
            for i, (before, group) in enumerate(zip(groups, optimizer.param_groups, strict=False)):
                yield from _option_differences(f"of group {i} of {name}", before, group)


def _option_differences(where: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if list(map(id, before["params"])) != list(map(id, now["params"])):
        yield f"the parameters {where}, {len(now['params'])} now and {len(before['params'])} before"
    for key in {**before, **now}:
        if key not in LIVE and before.get(key) != now.get(key):
            yield f"{key} {where} is {now.get(key)}, was {before.get(key)}"


def copied(group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group with a list of its own."""
    return {**group, "params": list(group["params"])}


def _hook_ids(modules: Iterable[Module], tensors: Iterable[Tensor]) -> list[list[int]]:
    edges = [tensor._edge for tensor in tensors]
    of_tensors = [[] if edge is None else list(map(id, edge[0].hooks or ())) for edge in edges]
    return [list(vars(module)[table]) for module in modules for table in HOOKS] + of_tensors


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"
