"""The nested structure of arguments and results as JSON values and back.

    {"kind": "tensor"}   {"kind": "constant", "value": 3}   {"kind": "list", "children": [...]}   {"kind": "tuple", ...}
    {"kind": "dict", "keys": [...], "children": [...]}   {"kind": "namedtuple", "type": "Point", "keys": [...], ...}
    {"kind": "dataclass", "type": "Batch", "keys": [...], "children": [...]}

The classes of named tuples and dataclasses are not in the file: results come back in classes made from their names.
"""

from __future__ import annotations

import dataclasses
import keyword
from collections import namedtuple
from functools import partial
from itertools import islice
from typing import Any

from miniflow.errors import CheckpointError
from miniflow.graph.nested import CONSTANT, DATACLASS, DICT, LEAF, NAMED, SEQUENCE, TENSOR, Tree, key_of, unflatten
from miniflow.graph.saved.fields import each, one_of, record, refuse, text
from miniflow.graph.saved.values import Values, encode_value

KINDS = {SEQUENCE: "", DICT: "dict", NAMED: "namedtuple", DATACLASS: "dataclass"}


def encode_tree(tree: Tree, what: str) -> dict[str, Any]:
    """The JSON value of a tree.

    Args:
        what: "arguments" or "results", for messages.

    Raises:
        CheckpointError: for a constant that JSON has no place for.
    """
    if tree.kind == TENSOR:
        return {"kind": "tensor"}
    if tree.kind == CONSTANT:
        try:
            return {"kind": "constant", "value": encode_value(tree.constant)}
        except CheckpointError:
            kind = type(tree.constant)
            raise CheckpointError(
                f"save: the {what} of the graph contain a {kind.__module__}.{kind.__qualname__}; expected tensors, "
                "numbers, strings and None in lists, tuples, dicts and dataclasses"
            ) from None
    found = {"kind": KINDS[tree.kind] or tree.type.__name__}
    if tree.kind in (NAMED, DATACLASS):
        found["type"] = tree.type.__name__
    if tree.kind != SEQUENCE:
        found["keys"] = [encode_value(key) for key in tree.keys]
    return {**found, "children": [encode_tree(child, what) for child in tree.children]}


def decode_tree(values: Values, value: Any, at: str) -> Tree:
    """The tree for a JSON value.

    Raises:
        CheckpointError: for anything that `encode_tree` would not have written.
    """
    children, keys = each(partial(decode_tree, values)), each(values.value)
    readers = {
        "tensor": {},
        "constant": {"value": values.value},
        "list": {"children": children},
        "tuple": {"children": children},
        "dict": {"keys": keys, "children": children},
        **dict.fromkeys(("namedtuple", "dataclass"), {"type": word, "keys": each(word), "children": children}),
    }
    if not isinstance(value, dict) or "kind" not in value:
        refuse(at, type(value).__name__, "an object with a kind")
    fields = one_of(readers)(value["kind"], f"{at}.kind")
    found = record(value, at, kind=text, **fields)
    kind, keys, children = found["kind"], tuple(found.get("keys", ())), tuple(found.get("children", ()))
    if kind == "tensor":
        return LEAF
    if kind == "constant":
        return Tree(CONSTANT, type(found["value"]), constant=found["value"], key=key_of(found["value"]))
    if kind in ("list", "tuple"):
        return Tree(SEQUENCE, {"list": list, "tuple": tuple}[kind], children=children)
    if not len(keys) == len(set(keys)) == len(children):
        refuse(f"{at}.keys", f"{len(keys)} keys for {len(children)} children", "as many, all different")
    if kind == "dict":
        return Tree(DICT, dict, keys, children)
    if kind == "namedtuple":
        return Tree(NAMED, namedtuple(found["type"], keys), keys, children)  # noqa: PYI024
    return Tree(DATACLASS, dataclasses.make_dataclass(found["type"], keys), keys, children)


def word(value: Any, at: str) -> str:
    """The name of a class that is made, or of one of its fields."""
    if type(value) is not str or not value.isidentifier() or keyword.iskeyword(value) or value.startswith("_"):
        refuse(at, repr(value)[:80], "names of a class and its fields, not beginning with an underscore")
    return value


def arranged(expected: Tree, given: Tree, tensors: list[Any]) -> list[Any] | None:
    """The tensors of a call in the order of the saved arguments; None if those have another structure.

    What has keys is matched by them, and classes of the same fields are taken for the same.
    """
    if expected == given:
        return tensors
    if expected.kind != given.kind or expected.key != given.key or len(expected.children) != len(given.children):
        return None
    if expected.kind in (SEQUENCE, CONSTANT) and expected.type is not given.type:
        return None
    rest = iter(tensors)
    parts = [(child, list(islice(rest, count(child)))) for child in given.children]
    if expected.keys != given.keys:
        by_key = dict(zip(given.keys, parts, strict=True))
        if by_key.keys() != set(expected.keys):
            return None
        parts = [by_key[key] for key in expected.keys]
    found = [arranged(wanted, *part) for wanted, part in zip(expected.children, parts, strict=True)]
    return None if None in found else [tensor for part in found for tensor in part]


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
