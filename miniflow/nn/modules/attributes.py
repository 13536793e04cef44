"""Errors for names and values that a module cannot store as a parameter, a buffer or a submodule."""

from __future__ import annotations

from typing import Any, NoReturn

from miniflow.errors import ArgumentError, ArgumentTypeError

KINDS = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}


def raise_unknown(module: Any, name: str) -> NoReturn:
    """Raise AttributeError for an attribute that a module does not have."""
    cls = type(module)
    message = f"{cls.__name__} has no attribute {name!r}"
    if "_parameters" not in vars(module):
        message += f": call super().__init__() first in {cls.__name__}.__init__"
    elif isinstance(getattr(cls, name, None), property):
        message = f"the property {name!r} of {cls.__name__} failed with an AttributeError of its own"
    raise AttributeError(message)


def check_name(module: Any, table: str, name: str) -> None:
    """Raise AttributeError before `Module.__init__`, and ArgumentError for a name that cannot be used."""
    noun, cls, attributes = KINDS[table], type(module), vars(module)
    if "_parameters" not in attributes:
        raise AttributeError(
            f"cannot assign {noun} {name!r} before Module.__init__ has run: "
            f"call super().__init__() first in {cls.__name__}.__init__"
        )
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{cls.__name__}: got {name!r} as the name of a {noun}; expected a str")
    if name == "" or "." in name:
        raise ArgumentError(f"{cls.__name__}: got {name!r} as the name of a {noun}; expected one without dots")
    namespaces = [attributes, attributes["_derived_tensors"], *(attributes[other] for other in KINDS if other != table)]
    if name not in attributes[table] and (hasattr(cls, name) or any(name in names for names in namespaces)):
        raise ArgumentError(f"{cls.__name__}: the attribute {name!r} exists already; choose another name")


def wrong_kind(module: Any, table: str, name: str, value: Any) -> ArgumentTypeError:
    """The error for a value of a type that `table` does not hold."""
    noun = KINDS[table]
    expected = {"_parameters": "Parameter", "_buffers": "Tensor", "_modules": "Module"}[table]
    remedy = f"or `del` the {noun} first"
    if table == "_modules" and isinstance(value, type):
        remedy = f"such as {value.__name__}(...), an object of the class"
    elif table == "_modules" and isinstance(value, list | tuple):
        remedy = "or each of them by itself: *layers"
    elif table == "_modules" and callable(value):
        remedy = "such as the layer that calls the function"
    return ArgumentTypeError(
        f"cannot assign a {type(value).__name__} as {noun} {name!r} of {type(module).__name__}; "
        f"expected a {expected} or None, {remedy}"
    )
