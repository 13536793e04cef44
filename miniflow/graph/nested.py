"""Nested arguments and results of a graph: lists, tuples, dicts, dataclasses and other records of tensors and None.

`flatten` takes a value apart into its tensors, in order, and a `Tree` that remembers everything else; two values of
equal trees differ in their tensors only. Every place has a name, as in OneFlow: "0.1" is the second positional
argument, "0.1.0_left" what it holds under its first key, "left".
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from miniflow.errors import ArgumentTypeError, GraphError
from miniflow.tensor import Tensor

TENSOR, SEQUENCE, NAMED, DICT, DATACLASS, CONSTANT = "tensor", "sequence", "namedtuple", "dict", "dataclass", "constant"


@dataclass(frozen=True)
class Tree:
    """What a nested value is, apart from its tensors.

    Attributes:
        kind: TENSOR, SEQUENCE, NAMED, DICT, DATACLASS or CONSTANT.
        type: of the container.
        keys: of a dict, or the names of the fields of a dataclass or another record.
        children: trees of what it holds.
        constant: the value of a CONSTANT.
        key: what tells this constant from others; values such as 1, 1.0 and True are different.
    """

    kind: str
    type: type | None = None
    keys: tuple = ()
    children: tuple[Tree, ...] = ()
    constant: Any = field(default=None, compare=False)
    key: Any = None


LEAF = Tree(TENSOR)
INNER = ("builtins", "miniflow")  # packages whose classes are no records of a user
OF_RECORDS = ("__init__", "__repr__", "__str__", "__dict__", "__weakref__", "__annotate__", "__annotate_func__")


def flatten(value: Any, tell: bool = True) -> tuple[list[Tensor], Tree]:
    """The tensors in `value`, in order, and the tree around them.

    Args:
        value: nested in any way.
        tell: whether trees of different constants have to differ.

    Raises:
        ArgumentTypeError: for a constant that cannot be told from others.
        GraphError: for a value that contains itself.
    """
    tensors: list[Tensor] = []
    return tensors, _tree(value, tensors, (), tell)


def _tree(value: Any, tensors: list[Tensor], above: tuple[int, ...], tell: bool) -> Tree:
    if isinstance(value, Tensor):
        tensors.append(value)
        return LEAF
    contents = _contents(value)
    if contents is None:
        return Tree(CONSTANT, type(value), constant=_own(value), key=key_of(value) if tell else None)
    if id(value) in above:
        raise GraphError(f"nn.Graph: a {type(value).__name__} contains itself; pass a structure without cycles")
    kind, keys, children = contents
    above = (*above, id(value))
    return Tree(kind, type(value), keys, tuple(_tree(child, tensors, above, tell) for child in children))


def _contents(value: Any) -> tuple[str, tuple, list[Any]] | None:
    """Kind, keys and contents of a container; None for anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return NAMED, tuple(value._fields), list(value)
    if type(value) in (list, tuple):
        return SEQUENCE, (), list(value)
    if isinstance(value, dict):
        return DICT, tuple(value), list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(f.name for f in dataclasses.fields(value))
        return DATACLASS, names, [getattr(value, name) for name in names]
    if is_record(type(value)) and hasattr(value, "__dict__"):
        return DATACLASS, tuple(vars(value)), list(vars(value).values())
    return None


@functools.lru_cache(1024)
def is_record(cls: type) -> bool:
    """Whether objects of a class are no more than their fields: a dataclass, a namespace, a class without methods."""
    if dataclasses.is_dataclass(cls) or issubclass(cls, SimpleNamespace | Namespace):
        return True
    kinds = cls.__mro__[:-1]
    if cls.__hash__ is not object.__hash__ or any(kind.__module__.split(".")[0] in INNER for kind in kinds):
        return False
    members = {name: value for kind in kinds for name, value in vars(kind).items() if name not in OF_RECORDS}
    return not any(callable(value) or hasattr(value, "__get__") for value in members.values())


def _own(value: Any) -> Any:
    """A constant that nobody changes: a copy of an array."""
    return value.copy() if isinstance(value, np.ndarray) else value


def key_of(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, float | complex | np.inexact):
        return repr(value)  # nan is like nan, -0.0 is not like 0.0
    try:
        hash(value)
    except TypeError:
        raise ArgumentTypeError(
            f"nn.Graph: got a {type(value).__name__}; expected tensors, None and values that can be hashed, in lists, "
            "tuples, dicts and objects without methods: a graph has to notice when a constant changes"
        ) from None
    return value


def unflatten(tree: Tree, tensors: Sequence[Any]) -> Any:
    """The value of this tree that holds `tensors`."""
    return _build(tree, iter(tensors))


def _build(tree: Tree, tensors: Iterator[Any]) -> Any:
    if tree.kind == TENSOR:
        return next(tensors)
    if tree.kind == CONSTANT:
        return _own(tree.constant)
    children = [_build(child, tensors) for child in tree.children]
    if tree.kind == SEQUENCE:
        return tree.type(children)
    if tree.kind == NAMED:
        return tree.type(*children)
    items = dict(zip(tree.keys, children, strict=True))
    if tree.kind == DATACLASS:
        result = tree.type.__new__(tree.type)
        for name, child in items.items():
            object.__setattr__(result, name, child)
        return result
    try:
        return tree.type(items)
    except TypeError:  # a dict whose constructor takes something else, as defaultdict does
        return items


def check_arguments(name: str, function: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the function's parameters, in their order.

    Raises:
        ArgumentTypeError: if the function does not take them; `name` is what it is called there.
    """
    signature = inspect.signature(function)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ArgumentTypeError(
            f"{name}: {error}; expected {name}({', '.join(signature.parameters)}), got {len(args)} arguments by "
            f"position and {list(kwargs)} by name"
        ) from None


def named_leaves(tree: Tree, prefix: str) -> list[tuple[str, Tree]]:
    """The name of every place that holds no container, in order: `_Name_0_input.0.1_3`.

    The last number counts all places, containers too, in the order of the tree; in a dict the key stands for it.
    """
    return list(_named(tree, prefix, "", itertools.count()))


def _named(tree: Tree, path: str, key: str, numbers: Iterator[int]) -> Iterator[tuple[str, Tree]]:
    number = next(numbers)
    if tree.kind in (TENSOR, CONSTANT):
        yield f"_{path}_{key or number}", tree
    for i, child in enumerate(tree.children):
        yield from _named(child, f"{path}.{i}", str(tree.keys[i]) if tree.kind in (DICT, DATACLASS) else "", numbers)


def constants(tree: Tree, prefix: str) -> list[tuple[str, Any]]:
    """The constants other than None, with their names."""
    leaves = named_leaves(tree, prefix)
    return [(name, x.constant) for name, x in leaves if x.kind == CONSTANT and x.constant is not None]
