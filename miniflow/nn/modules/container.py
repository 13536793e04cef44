"""Modules and parameters in sequences and dicts, registered with the module that holds them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from miniflow.errors import IndexRangeError
from miniflow.nn.modules.module import Module, bracketed, indented
from miniflow.nn.parameter import Parameter
from miniflow.tensor import Tensor


class _Container(Module):
    """Entries in one of the tables of a module, by name."""

    _table = "_modules"

    @property
    def _entries(self) -> dict[str, Any]:
        return self.__dict__[self._table]

    def _register_entry(self, name: str, entry: Any) -> None:
        self.add_module(name, entry)

    def __len__(self) -> int:
        return len(self._entries)


class _ParameterContainer(_Container):
    _table = "_parameters"

    def _register_entry(self, name: str, entry: Any) -> None:
        tensor = isinstance(entry, Tensor) and not isinstance(entry, Parameter)
        self.register_parameter(name, Parameter(entry) if tensor else entry)

    def extra_repr(self) -> str:
        return "\n".join(
            f"  ({name}): Parameter containing: [{p.dtype} of size {'x'.join(map(str, p.shape))}]"
            for name, p in self._parameters.items()
        )


class _List(_Container):
    """Entries in an order, usually named by their numbers."""

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self.extend(values or ())

    def _names(self, index: int | slice) -> list[str]:
        names = list(self._entries)
        try:
            return names[index] if isinstance(index, slice) else [names[index]]
        except IndexError:
            message = f"index {index} is out of range for {len(names)} entries"
            raise IndexRangeError(f"{type(self).__name__}: {message}") from None

    def _renumber(self, entries: Iterable[Any]) -> None:
        entries = list(entries)
        self._entries.clear()
        self.extend(entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries.values())

    def __getitem__(self, index: int | slice) -> Any:
        entries = [self._entries[name] for name in self._names(index)]
        return type(self)(entries) if isinstance(index, slice) else entries[0]

    def __setitem__(self, index: int, entry: Any) -> None:
        self._register_entry(self._names(index)[0], entry)

    def __delitem__(self, index: int | slice) -> None:
        for name in self._names(index):
            del self._entries[name]
        self._renumber(list(self))

    def append(self, entry: Any) -> _List:
        """Add an entry at the end; returns the container."""
        self._register_entry(str(len(self)), entry)
        return self

    def extend(self, entries: Iterable[Any]) -> _List:
        """Add entries at the end; returns the container."""
        for entry in list(entries):
            self.append(entry)
        return self

    __iadd__ = extend

    def insert(self, index: int, entry: Any) -> _List:
        """Add an entry before the one at `index`, and renumber all; return the container."""
        entries = list(self)
        entries.insert(index, entry)
        self._renumber(entries)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove the entry at `index` and return it."""
        entry = self[index]
        del self[index]
        return entry


class _Dict(_Container, MutableMapping):
    """Entries by name, in the order in which they were added."""

    __eq__, __hash__ = Module.__eq__, Module.__hash__

    def __init__(self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        super().__init__()
        self.update(entries or {})

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __setitem__(self, name: str, entry: Any) -> None:
        self._register_entry(name, entry)

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The entry of that name, which is `default` if there was none: as it is registered."""
        if name not in self:
            self[name] = default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)


class Sequential(_List):
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
        only_dict = len(args) == 1 and isinstance(args[0], dict)
        for name, module in (args[0] if only_dict else {str(i): m for i, m in enumerate(args)}).items():
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


class ModuleList(_List):
    """A list of modules; the module it is assigned to decides how they are called.

    >>> import miniflow as flow
    >>> ModuleList(flow.nn.Linear(2, 2) for _ in range(3))
    ModuleList(
      (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    )

    Source: `torch.nn.ModuleList`.
    """

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


class ModuleDict(_Dict):
    """A dict of modules by name, in the order in which they were added.

    >>> import miniflow as flow
    >>> heads = ModuleDict({"digit": flow.nn.Linear(8, 10), "parity": flow.nn.Linear(8, 2)})
    >>> list(heads), "digit" in heads, len(heads)
    (['digit', 'parity'], True, 2)

    Source: `torch.nn.ModuleDict`.
    """


class ParameterList(_ParameterContainer, _List):
    """A list of parameters; tensors become parameters.

    >>> import miniflow as flow
    >>> weights = ParameterList([flow.zeros(2), flow.ones(3)])
    >>> len(weights), weights[1].requires_grad
    (2, True)

    Source: `torch.nn.ParameterList`.
    """


class ParameterDict(_ParameterContainer, _Dict):
    """A dict of parameters by name; tensors become parameters.

    >>> import miniflow as flow
    >>> weights = ParameterDict({"left": flow.zeros(2)})
    >>> weights["right"] = flow.ones(3)
    >>> list(weights.keys())
    ['left', 'right']

    Source: `torch.nn.ParameterDict`.
    """
