"""Fields of a JSON document that nobody has checked yet: each function returns the value or names what is wrong."""

from __future__ import annotations

from typing import Any, NoReturn

from miniflow.errors import CheckpointError

MAX_TEXT = 10_000  # characters


def record(value: Any, at: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """An object with exactly these keys."""
    if not isinstance(value, dict) or set(value) != set(keys):
        got = f"the keys {sorted(value)[:12]}" if isinstance(value, dict) else type(value).__name__
        refuse(at, got, f"an object with the keys {', '.join(keys)}")
    return value


def items(value: Any, at: str) -> list[tuple[Any, str]]:
    """The entries of a list, each with its place."""
    if type(value) is not list:
        refuse(at, type(value).__name__, "a list")
    return [(entry, f"{at}[{number}]") for number, entry in enumerate(value)]


def text(value: Any, at: str) -> str:
    """A string of bearable length without control characters: scopes and locations get into generated code."""
    if type(value) is not str or len(value) > MAX_TEXT or not value.isprintable():
        refuse(at, repr(value)[:80], f"a string of at most {MAX_TEXT} printable characters")
    return value


def choice(value: Any, at: str, among: Any) -> str:
    """One of some names."""
    if type(value) is not str or value not in among:
        few = ", ".join(list(among)[:8]) + (" ..." if len(among) > 8 else "")
        refuse(at, repr(value)[:80], f"one of {few}")
    return value


def integer(value: Any, at: str, least: int, most: int = 2**48) -> int:
    """An integer within bounds."""
    if type(value) is not int or not least <= value <= most:
        refuse(at, repr(value)[:80], f"an integer from {least} to {most}")
    return value


def refuse(at: str, got: Any, expected: str) -> NoReturn:
    """Raise CheckpointError for a value at a place of the file."""
    raise CheckpointError(f"load: {at}: got {got}; expected {expected}")
