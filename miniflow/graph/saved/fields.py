"""Fields of a JSON document that nobody has checked yet: each reader takes a value and its place in the document, and
returns what it stands for, or names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from miniflow.errors import CheckpointError

Reader = Callable[[Any, str], Any]
MAX_TEXT = 10_000  # characters


def record(value: Any, at: str, /, **readers: Reader) -> dict[str, Any]:
    """An object with exactly these keys; the readers of its fields are called in their order."""
    if not isinstance(value, dict) or value.keys() != readers.keys():
        got = f"the keys {sorted(value)[:12]}" if isinstance(value, dict) else type(value).__name__
        refuse(at or "document", got, f"an object with the keys {', '.join(readers)}")
    return {name: read(value[name], f"{at}.{name}" if at else name) for name, read in readers.items()}


def each(read: Reader) -> Reader:
    """A list, each entry read."""

    def read_all(value: Any, at: str) -> list[Any]:
        if type(value) is not list:
            refuse(at, type(value).__name__, "a list")
        return [read(entry, f"{at}[{number}]") for number, entry in enumerate(value)]

    return read_all


def pair(first: Reader, second: Reader) -> Reader:
    """A list of two entries."""

    def read_both(value: Any, at: str) -> tuple[Any, Any]:
        found = each(lambda entry, _: entry)(value, at)
        if len(found) != 2:
            refuse(at, f"{len(found)} entries", "two")
        return first(found[0], f"{at}[0]"), second(found[1], f"{at}[1]")

    return read_both


def named(read: Reader) -> Reader:
    """An object with any keys, each value read."""

    def read_all(value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(at, type(value).__name__, "an object")
        return {name: read(entry, f"{at}.{name:.80}") for name, entry in value.items()}

    return read_all


def optional(read: Reader) -> Reader:
    """Null for None, or what `read` takes."""
    return lambda value, at: None if value is None else read(value, at)


def text(value: Any, at: str) -> str:
    """A string of bearable length without control characters: scopes and locations get into generated code."""
    if type(value) is not str or len(value) > MAX_TEXT or not value.isprintable():
        refuse(at, repr(value)[:80], f"a string of at most {MAX_TEXT} printable characters")
    return value


def one_of(names: Any) -> Reader:
    """One of some names; of a dict, what it holds under that name."""

    def read(value: Any, at: str) -> Any:
        if type(value) is not str or value not in names:
            few = ", ".join(list(names)[:8]) + (" ..." if len(names) > 8 else "")
            refuse(at, repr(value)[:80], f"one of {few}")
        return names[value] if isinstance(names, dict) else value

    return read


def flag(value: Any, at: str) -> bool:
    """True or false."""
    return value if type(value) is bool else refuse(at, repr(value)[:80], "true or false")


def integer(least: int, most: int = 2**48) -> Reader:
    """An integer within bounds."""

    def read(value: Any, at: str) -> int:
        if type(value) is not int or not least <= value <= most:
            refuse(at, repr(value)[:80], f"an integer from {least} to {most}")
        return value

    return read


def refuse(at: str, got: Any, expected: str) -> NoReturn:
    """Raise CheckpointError for a value at a place of the file."""
    raise CheckpointError(f"load: {at}: got {got}; expected {expected}")
