"""Load what is checked: a student's file, the solution, the stub, or a wrong solution."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import ModuleType

from tutorials.lessons import Lesson, lesson

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
    if not Path(which).exists():
        raise FileNotFoundError(f"there is no file {which!r}; expected one, or student, solution, stub or wrong:NAME")
    return Path(which)


def written(found: Lesson, source: str) -> Path:
    """A temporary file with this source: numba reads the source of kernels from files."""
    folder = Path(tempfile.mkdtemp(prefix="lesson-"))
    path = folder / f"{found.name}.py"
    path.write_text(source, encoding="utf-8")
    return path


def load(path: Path) -> ModuleType:
    """A fresh module of a file; never of its compiled file, which Python takes for that of another of the same size if
    both were written within a second, as mutants are."""
    module = ModuleType(f"implementation_{path.stem.lstrip('0123456789_')}")
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(module))
    return module
