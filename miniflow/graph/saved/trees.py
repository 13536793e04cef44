"""The nested structure of arguments and results as JSON values and back.

    {"tree": {"kind": "sequence", "type": "list", "keys": {"tuple": []}, "children": {"tuple": [{"tree": ...}]}}}

The classes of named tuples and dataclasses are not in the file: results come back in classes made from their names.
"""

from __future__ import annotations

import dataclasses
import keyword
from collections import namedtuple
from itertools import islice
from types import NoneType
from typing import Any

from miniflow.graph.nested import (
    CONSTANT,
    DATACLASS,
    DICT,
    LEAF,
    NAMED,
    SEQUENCE,
    TENSOR,
    Tree,
    key_of,
    unflatten,
)
from miniflow.graph.saved.attributes import among, instance, several
from miniflow.graph.saved.values import Form, refuse

CLASSES = {"list": list, "tuple": tuple}


def parts_of(tree: Tree) -> dict[str, Any]:
    """What is written of a tree."""
    parts = {name: getattr(tree, name) for name in TREES}
    return parts | {"type": tree.type.__name__ if tree.kind in (SEQUENCE, NAMED, DATACLASS) else None}


def tree_of(kind: str, type: str | None, keys: tuple, children: tuple[Tree, ...], constant: Any) -> Tree:
    """A tree of such parts, in a class of that name."""
    if kind == TENSOR:
        return LEAF
    if kind == CONSTANT:
        return Tree(kind, constant.__class__, constant=constant, key=key_of(constant))
    if kind == SEQUENCE:
        return Tree(kind, CLASSES[type], children=children)
    if not len(keys) == len(set(keys)) == len(children):
        refuse(f"{len(keys)} keys for {len(children)} children", "as many, all different")
    if kind == DICT:
        return Tree(kind, dict, keys, children)
    for word in (type, *keys):
        if not isinstance(word, str) or not word.isidentifier() or keyword.iskeyword(word) or word.startswith("_"):
            refuse(word, "names of a class and its fields, not beginning with an underscore")
    make = namedtuple if kind == NAMED else dataclasses.make_dataclass
    return Tree(kind, make(type, keys), keys, children)


TREES = {
    "kind": among(TENSOR, SEQUENCE, NAMED, DICT, DATACLASS, CONSTANT), "type": instance(str, NoneType),
    "keys": instance(tuple), "children": several(instance(Tree)), "constant": instance(object),
}  # fmt: skip
FORM = Form(Tree, parts_of, tree_of, TREES)


def arranged(expected: Tree, called: Tree, tensors: list[Any]) -> list[Any] | None:
    """The tensors of a call in the order of the saved arguments; None if those have another structure.

    What has keys is matched by them, and classes of the same fields are taken for the same.
    """
    if expected == called:
        return tensors
    if expected.kind != called.kind or expected.key != called.key or len(expected.children) != len(called.children):
        return None
    if expected.kind in (SEQUENCE, CONSTANT) and expected.type is not called.type:
        return None
    rest = iter(tensors)
    parts = [(child, list(islice(rest, count(child)))) for child in called.children]
    if expected.keys != called.keys:
        by_key = dict(zip(called.keys, parts, strict=True))
        if by_key.keys() != set(expected.keys):
            return None
        parts = [by_key[key] for key in expected.keys]
    tensors_of_parts = [arranged(wanted, *part) for wanted, part in zip(expected.children, parts, strict=True)]
    return None if None in tensors_of_parts else [tensor for part in tensors_of_parts for tensor in part]


def count(tree: Tree) -> int:
    """The number of tensors in a tree."""
    return 1 if tree.kind == TENSOR else sum(count(child) for child in tree.children)


class Shown:
    """Stands for a tensor where a tree is printed."""

    def __repr__(self) -> str:
        return "tensor"


def describe(tree: Tree) -> str:
    """A tree as it can be read: `([tensor, tensor], {'mask': tensor})`."""
    return f"{unflatten(tree, [Shown()] * count(tree))!r:.500}"
