"""Load what is checked: a student's file, the solution, the stub, or a wrong solution."""

from __future__ import annotations

import ast
import os
import tempfile
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from tutorials.lessons import Lesson, lesson
from tutorials.limits import OutOfTime, at_most

LACKS = "has it another name there, or is it indented?"
STUDENT, SOLUTION, STUB, WRONG = "student", "solution", "stub", "wrong:"


class Todo(NotImplementedError):
    """Raised by what a student has not written yet."""


def default() -> str:
    """What is checked if nothing else is asked for: the student's file, or what the variable LESSON_IMPL names."""
    return os.environ.get("LESSON_IMPL", STUDENT)


def implementation(of: Lesson | int | str, which: str | None = None) -> ModuleType:
    """A module with the functions of a lesson.

    Args:
        of: the lesson.
        which: "student", "solution", "stub", "wrong:NAME", or the path of a file; see `default`. Without a student's
            file, "student" is the stub.

    Raises:
        LookupError: for an unknown lesson or wrong solution.
        FileNotFoundError: if there is no such file.
        Exception: what the file raises when it is imported.
    """
    found = of if isinstance(of, Lesson) else lesson(of)
    return load(path_of(found, which or default()))


def path_of(found: Lesson, which: str) -> Path:
    """The file of an implementation; the stub and wrong solutions are written to a temporary folder."""
    if which == SOLUTION:
        return found.solution
    if which == STUDENT and found.student.exists():
        return found.student
    if which in (STUDENT, STUB):
        return written(found, found.stub)
    if which.startswith(WRONG):
        name = which.removeprefix(WRONG)
        if name not in found.wrong:
            raise LookupError(f"{found.name} has no wrong solution {name!r}; expected one of {list(found.wrong)}")
        return written(found, "".join(path.read_text(encoding="utf-8") for path in (found.solution, found.wrong[name])))
    if not Path(which).is_file():
        raise FileNotFoundError(f"there is no file {which!r}; expected one, or student, solution, stub or wrong:NAME")
    return Path(which)


def written(found: Lesson, source: str) -> Path:
    """A temporary file with this source: numba reads the source of kernels from files."""
    folder = Path(tempfile.mkdtemp(prefix="lesson-"))
    path = folder / f"{found.name}.py"
    path.write_text(source, encoding="utf-8")
    return path


class Implementation(ModuleType):
    """A module that says what its file lacks."""

    def __getattr__(self, name: str) -> Any:
        file = Path(self.__file__).name
        raise AttributeError(f"there is no {name!r} in {file}: {LACKS}")


def load(path: Path) -> Implementation:
    """A fresh module of a file; never of its compiled file, which Python takes for that of another of the same size if
    both were written within a second, as mutants are.

    Raises:
        SyntaxError: if the file is no text, or no Python.
        ImportError: if it ends the program, or is stopped since it takes too long.
        Exception: what the file raises.
    """
    module = Implementation(f"implementation_{path.stem.lstrip('0123456789_')}")
    module.__file__ = str(path)
    code = compile(parsed(text_of(path), str(path)), path, "exec", dont_inherit=True)
    try:
        exec(code, vars(module))
    except (SystemExit, OutOfTime) as error:  # which would end more than the load
        why = f"{error}" if isinstance(error, OutOfTime) else "the file ends the program, as by exit()"
        raise ImportError(f"when it is loaded: {why}").with_traceback(error.__traceback__) from None
    return module


def loaded(path: Path) -> Implementation | None:
    """The module of a file; None if it cannot be loaded, or not in time: its check says why."""
    try:
        with at_most(10):
            return load(path)
    except Exception:  # of any kind, as a student wrote it
        return None


def text_of(path: Path) -> str:
    """The text of a file as Python reads it: a byte order mark is left out, and an encoding may be declared.

    Raises:
        SyntaxError: if it is in another one.
    """
    data = path.read_bytes()
    try:
        return decode_source(data)
    except (UnicodeDecodeError, SyntaxError) as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        message = f"what is written here is not in UTF-8 ({getattr(error, 'reason', error)}): save the file in UTF-8"
        raise SyntaxError(message, (str(path), line, None, None)) from None


def parsed(source: str, name: str) -> ast.Module:
    """The syntax tree of a text, which errors call by this name.

    Raises:
        SyntaxError: if it is no Python.
    """
    try:
        return ast.parse(source, name)
    except (ValueError, SyntaxError) as error:  # ValueError: for null bytes, before Python 3.12
        if getattr(error, "lineno", None) is None:
            line = source.count("\n", 0, max(0, source.find("\0"))) + 1
            raise SyntaxError(f"{error}", (name, line, None, None)) from None
        raise
