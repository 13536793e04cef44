"""Modules and parameters in sequences and dicts, registered with the module that holds them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from miniflow.errors import IndexRangeError
from miniflow.nn.modules.module import Module, bracketed, indented
from miniflow.nn.parameter import Parameter
from miniflow.tensor import Tensor


def _position(container: Module, index: int, length: int) -> int:
    """`index` counted from the front.

    Raises:
        IndexRangeError: if it is out of range.
    """
    position = operator.index(index)
    if not -length <= position < length:
        name = type(container).__name__
        raise IndexRangeError(
            f"{name}: index {position} is out of range for {length} entries; expected {-length} to {length - 1}"
        )
    return position % length


class ModuleSequence(Module):
    """What Sequential and ModuleList have in common: submodules in an order, usually named by their numbers."""

    def _names(self, index: int | slice) -> list[str]:
        names = list(self._modules)
        return names[index] if isinstance(index, slice) else [names[_position(self, index, len(names))]]

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules = {}
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._names(index)[0], module)

    def __delitem__(self, index: int | slice) -> None:
        for name in self._names(index):
            del self._modules[name]
        self._renumber(list(self))

    def append(self, module: Module) -> ModuleSequence:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleSequence:
        """Add modules at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> ModuleSequence:
        """Add a module before the one at `index`, and renumber all; return the container."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, index: int = -1) -> Module:
        """Remove the module at `index` and return it."""
        module = self._modules[self._names(index)[0]]
        del self[index]
        return module

    def __iadd__(self, modules: Iterable[Module]) -> ModuleSequence:
        return self.extend(modules)


class Sequential(ModuleSequence):
    """Modules that are called one after the other.

    Args:
        args: the modules, or one dict of modules by name.

    >>> import miniflow as flow
    >>> network = Sequential(flow.nn.Linear(4, 3), flow.nn.ReLU(), flow.nn.Linear(3, 2))
    >>> network(flow.zeros(5, 4)).shape
    miniflow.Size([5, 2])
    >>> network[:2]
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): ReLU()
    )

    Source: `torch.nn.Sequential`.
    """

    def __init__(self, *args: Any):
        super().__init__()
        named = (
            args[0].items()
            if len(args) == 1 and isinstance(args[0], dict)
            else ((str(i), m) for i, m in enumerate(args))
        )
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index: int | slice) -> Module:
        names = self._names(index)
        return Sequential({n: self._modules[n] for n in names}) if isinstance(index, slice) else self._modules[names[0]]

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)


class ModuleList(ModuleSequence):
    """A list of modules; the module it is assigned to decides how they are called.

    >>> import miniflow as flow
    >>> ModuleList(flow.nn.Linear(2, 2) for _ in range(3))
    ModuleList(
      (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    )

    Source: `torch.nn.ModuleList`.
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index: int | slice) -> Module:
        modules = [self._modules[name] for name in self._names(index)]
        return ModuleList(modules) if isinstance(index, slice) else modules[0]

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        children = []
        first = 0
        for text, group in itertools.groupby(repr(module) for module in self):
            count = len(list(group))
            number = str(first) if count == 1 else f"{first}-{first + count - 1}"
            children.append(f"({number}): {'' if count == 1 else f'{count} x '}{indented(text)}")
            first += count
        return bracketed(type(self).__name__, [], children)


class ModuleDict(Module):
    """A dict of modules by name, in the order in which they were added.

    >>> import miniflow as flow
    >>> heads = ModuleDict({"digit": flow.nn.Linear(8, 10), "parity": flow.nn.Linear(8, 2)})
    >>> list(heads), "digit" in heads, len(heads)
    (['digit', 'parity'], True, 2)

    Source: `torch.nn.ModuleDict`.
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Pairs of name and module."""
        return self._modules.items()

    def pop(self, name: str) -> Module:
        """Remove the module of that name and return it."""
        return self._modules.pop(name)

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        for name, module in dict(modules).items():
            self[name] = module


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(name: Any, p: Parameter) -> str:
    return f"  ({name}): Parameter containing: [{p.dtype} of size {'x'.join(map(str, p.shape))}]"


class ParameterList(Module):
    """A list of parameters; tensors become parameters.

    >>> import miniflow as flow
    >>> weights = ParameterList([flow.zeros(2), flow.ones(3)])
    >>> len(weights), weights[1].requires_grad
    (2, True)

    Source: `torch.nn.ParameterList`.
    """

    def __init__(self, values: Iterable[Tensor] | None = None):
        super().__init__()
        self.extend(values or ())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        return self._parameters[str(_position(self, index, len(self)))]

    def __setitem__(self, index: int, value: Tensor) -> None:
        self.register_parameter(str(_position(self, index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def append(self, value: Tensor) -> ParameterList:
        """Add a parameter at the end; returns the list."""
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Add parameters at the end; returns the list."""
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Tensor]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(_describe(number, p) for number, p in enumerate(self))


class ParameterDict(Module):
    """A dict of parameters by name; tensors become parameters.

    >>> import miniflow as flow
    >>> weights = ParameterDict({"left": flow.zeros(2)})
    >>> weights["right"] = flow.ones(3)
    >>> list(weights.keys())
    ['left', 'right']

    Source: `torch.nn.ParameterDict`.
    """

    def __init__(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None):
        super().__init__()
        self.update(parameters or {})

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.register_parameter(name, _as_parameter(value))

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Parameter]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Parameter]]:
        """Pairs of name and parameter."""
        return self._parameters.items()

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter of that name, or `default`."""
        return self._parameters.get(name, default)

    def pop(self, name: str) -> Parameter:
        """Remove the parameter of that name and return it."""
        return self._parameters.pop(name)

    def clear(self) -> None:
        """Remove all parameters."""
        self._parameters.clear()

    def update(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
        """Add or replace parameters."""
        for name, value in dict(parameters).items():
            self[name] = value

    def extra_repr(self) -> str:
        return "\n".join(_describe(name, p) for name, p in self.items())
