"""A lesson and its files.

    tutorials/01_storage/
        lesson.py           prose and code in percent format, the source of notebooks/01_storage.ipynb
        solution.py         the solution, with the regions that students write marked
        test_01_storage.py  the checks of each task, on whatever implementation is asked for
        wrong/*.py          wrong solutions, each with the test and the message that must reject it
        stub.py             in the student edition, in place of the solution: what `start` writes
        student.py          the student's own file
        picture.py          `draw(impl)`, and where single tasks have pictures `draw_task(task, attempts)`

A region of the solution is what stands between these two comments:

    # task 1.2: the shape that two shapes broadcast to
    ...
    # end
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent
BEGIN = re.compile(r"^( *)# task (\d+\.\d+): (.+)$")
END = "# end"


@dataclass(frozen=True)
class Region:
    """Lines of a solution that a student writes.

    Attributes:
        task: "1.2".
        title: what the task is.
        indent: of the lines, in spaces.
        first, last: numbers of the lines between the two comments, from 1.
    """

    task: str
    title: str
    indent: int
    first: int
    last: int


@dataclass(frozen=True)
class Lesson:
    """A lesson, by its folder."""

    folder: Path

    @property
    def name(self) -> str:
        """`01_storage`."""
        return self.folder.name

    @property
    def number(self) -> int:
        """1, for `01_storage`."""
        return int(self.name.partition("_")[0])

    @property
    def title(self) -> str:
        """The headline of the prose."""
        first = (self.folder / "lesson.py").read_text(encoding="utf-8").split("\n# # ", 1)[1]
        return first.partition("\n")[0]

    @property
    def tests(self) -> Path:
        """The checks."""
        return self.folder / f"test_{self.name}.py"

    @property
    def student(self) -> Path:
        """The student's file."""
        return self.folder / "student.py"

    @property
    def solution(self) -> Path:
        """The solution; a student edition has none."""
        return self.folder / "solution.py"

    @property
    def wrong(self) -> dict[str, Path]:
        """The wrong solutions by name."""
        return {path.stem: path for path in sorted((self.folder / "wrong").glob("*.py"))}

    @property
    def tasks(self) -> list[str]:
        """The numbers of the tasks, "1.1" and so on, as the prose has them; the student edition has it too."""
        return re.findall(r"\*\*Task (\d+\.\d+)\.\*\*", (self.folder / "lesson.py").read_text(encoding="utf-8"))

    @cached_property
    def regions(self) -> list[Region]:
        """What students write."""
        return list(regions_of(self.solution.read_text(encoding="utf-8")))

    @property
    def stub(self) -> str:
        """The solution with the regions taken out; the student edition has it as a file."""
        if not self.solution.exists():
            return (self.folder / "stub.py").read_text(encoding="utf-8")
        lines = self.solution.read_text(encoding="utf-8").splitlines()
        for region in reversed(self.regions):
            what = f'{" " * region.indent}raise Todo("lesson {region.task}: {region.title}")'
            lines[region.first - 1 : region.last + 1] = [what]
        return "\n".join(lines) + "\n"


def regions_of(source: str) -> Iterator[Region]:
    """The marked regions of a solution.

    Raises:
        ValueError: for a region that does not end, or that is in no function.
    """
    lines = source.splitlines()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for number, line in enumerate(lines, start=1):
        begun = BEGIN.match(line)
        if begun:
            indent, task, title = begun.groups()
            if f"{indent}{END}" not in lines[number:]:
                raise ValueError(f"line {number}: task {task} has no {END!r}")
            last = lines.index(f"{indent}{END}", number)
            if not any(f.lineno < number and last <= f.end_lineno + 1 for f in functions):
                raise ValueError(f"line {number}: task {task} is in no function: it would keep the file from loading")
            yield Region(task, title, len(indent), number + 1, last)


def lessons() -> list[Lesson]:
    """All lessons, in order."""
    return [Lesson(path.parent) for path in sorted(ROOT.glob("[0-9][0-9]_*/lesson.py"))]


def lesson(which: int | str) -> Lesson:
    """A lesson by its number, its name, or one of its tasks: 1, "01_storage", "1.4".

    Raises:
        LookupError: if there is none.
    """
    short = without_zeros(re.sub(r"^(\d+)\.\d+$", r"\1", str(which)))
    for found in lessons():
        if short in (str(found.number), without_zeros(found.name)):
            return found
    raise LookupError(f"there is no lesson {which!r}; expected one of {[found.name for found in lessons()]}")


def without_zeros(name: str) -> str:
    """A number or a name without zeros before it."""
    return re.sub(r"^0+(?=\d)", "", name)


def lesson_and_task(which: int | str) -> tuple[Lesson, str | None]:
    """A lesson, and the task if the number of one is given: "1.4".

    Raises:
        LookupError: if there is none.
    """
    found, task = lesson(which), str(which) if "." in str(which) else None
    if task and task not in found.tasks:
        raise LookupError(f"lesson {found.name} has no task {task!r}; expected one of {found.tasks}")
    return found, task
