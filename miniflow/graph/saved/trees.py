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
from itertools import islice
from typing import Any

from miniflow.errors import CheckpointError
from miniflow.graph.nested import CONSTANT, DATACLASS, DICT, LEAF, NAMED, SEQUENCE, TENSOR, Tree, key_of
from miniflow.graph.saved.fields import choice, items, record, refuse, text
from miniflow.graph.saved.values import decode_value, encode_value

FIELDS = {
    "tensor": (),
    "constant": ("value",),
    "list": ("children",),
    "tuple": ("children",),
    "dict": ("keys", "children"),
    "namedtuple": ("type", "keys", "children"),
    "dataclass": ("type", "keys", "children"),
}
MAX_DEPTH = 50


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
    children = {"children": [encode_tree(child, what) for child in tree.children]}
    if tree.kind == SEQUENCE:
        return {"kind": tree.type.__name__, **children}
    keys = {"keys": [encode_value(key) for key in tree.keys]}
    if tree.kind == DICT:
        return {"kind": "dict", **keys, **children}
    return {"kind": {NAMED: "namedtuple", DATACLASS: "dataclass"}[tree.kind], "type": tree.type.__name__, **keys,
            **children}  # fmt: skip


def decode_tree(value: Any, at: str, depth: int = 0) -> Tree:
    """The tree for a JSON value.

    Raises:
        CheckpointError: for anything that `encode_tree` would not have written.
    """
    if depth > MAX_DEPTH:
        refuse(at, "deeper nesting", f"at most {MAX_DEPTH} levels")
    if not isinstance(value, dict) or "kind" not in value:
        refuse(at, type(value).__name__, "an object with a kind")
    kind = choice(value["kind"], f"{at}.kind", FIELDS)
    value = record(value, at, ("kind", *FIELDS[kind]))
    if kind == "tensor":
        return LEAF
    if kind == "constant":
        constant = decode_value(value["value"], f"{at}.value")
        return Tree(CONSTANT, type(constant), constant=constant, key=key_of(constant))
    children = tuple(decode_tree(v, place, depth + 1) for v, place in items(value["children"], f"{at}.children"))
    if kind in ("list", "tuple"):
        return Tree(SEQUENCE, {"list": list, "tuple": tuple}[kind], children=children)
    keys = tuple(decode_value(v, place) for v, place in items(value["keys"], f"{at}.keys"))
    if kind == "dict":
        check_keys(keys, children, at)
        return Tree(DICT, dict, keys, children)
    return decode_class(kind, text(value["type"], f"{at}.type"), keys, children, at)


def check_keys(keys: tuple, children: tuple, at: str) -> None:
    """Refuse keys that are not as many as there are children, all different."""
    try:
        distinct = len(set(keys))
    except TypeError:
        distinct = -1
    if not len(keys) == distinct == len(children):
        refuse(f"{at}.keys", f"{len(keys)} keys for {len(children)} children", "as many, all different")


def decode_class(kind: str, name: str, keys: tuple, children: tuple, at: str) -> Tree:
    """The tree of a named tuple or a dataclass, with a class made for it."""
    check_keys(keys, children, at)
    for word in (name, *keys):
        if type(word) is not str or not word.isidentifier() or keyword.iskeyword(word) or word.startswith("_"):
            refuse(at, repr(word)[:80], "names of a class and its fields, not beginning with an underscore")
    if kind == "namedtuple":
        return Tree(NAMED, namedtuple(name, keys), keys, children)  # noqa: PYI024
    return Tree(DATACLASS, dataclasses.make_dataclass(name, keys), keys, children)


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


def describe(tree: Tree) -> str:
    """A tree as it can be read: `([tensor, tensor], {'mask': tensor})`."""
    if tree.kind == TENSOR:
        return "tensor"
    if tree.kind == CONSTANT:
        return f"{tree.constant!r:.60}"
    inner = [describe(child) for child in tree.children]
    if tree.kind == SEQUENCE:
        ends, comma = ("[]", "") if tree.type is list else ("()", "," * (len(inner) == 1))
        return f"{ends[0]}{', '.join(inner)}{comma}{ends[1]}"
    if tree.kind == DICT:
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(tree.keys, inner, strict=True)) + "}"
    return f"{tree.type.__name__}({', '.join(f'{k}={c}' for k, c in zip(tree.keys, inner, strict=True))})"
