"""`mine`: what a student wrote in lessons 1 to 5, 9 and 10, as the parts of one framework.

What is not written yet is taken from the solutions; `missing` names it. The parts are modules:

    mine.storage, mine.autograd, mine.checker, mine.training, mine.operator, mine.convolution, mine.data
"""

from __future__ import annotations

import functools
import re
import zipfile
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from miniflow.formulas import scalar
from tutorials.cells import put
from tutorials.implementation import load, parsed, text_of, written
from tutorials.lessons import ROOT, Lesson, lesson

PARTS = {1: "storage", 2: "autograd", 3: "checker", 4: "training", 5: "operator", 9: "convolution", 10: "data"}
SOLUTIONS = ROOT / "parts.zip"  # of `PARTS`, in the student edition, which has no others


@dataclass(frozen=True)
class Framework:
    """The parts, each a module, and the tasks that are not the student's.

    Attributes:
        missing: "2.4", and so on.
    """

    storage: ModuleType
    autograd: ModuleType
    checker: ModuleType
    training: ModuleType
    operator: ModuleType
    convolution: ModuleType
    data: ModuleType
    missing: list[str]

    def __str__(self) -> str:
        if not self.missing:
            return "All of it is your own code."
        named = []
        for found in map(lesson, PARTS):
            tasks = [task for task in self.missing if task in found.tasks]
            named += [f"lesson {found.number}"] if tasks == found.tasks else tasks
        return f"Taken from the solutions, since you have not written them: {', '.join(named)}"


def assembled() -> Framework:
    """The framework of the students' files that are there."""
    modules, missing = {}, []
    for number, name in PARTS.items():
        found = lesson(number)
        source, tasks = merged(found)
        modules[name] = module_of(number, source)
        missing += tasks
    modules["autograd"].sum_to = modules["storage"].sum_to  # the gradient of a broadcast
    for name, value in vars(modules["operator"]).items():  # a formula for every target: here for NumPy's arrays
        if isinstance(value, scalar.Function) and hasattr(np, name):
            setattr(modules["operator"], name, getattr(np, name))
    return Framework(**modules, missing=missing)


@functools.cache
def module_of(number: int, source: str) -> ModuleType:
    """The module of a lesson's source; the same one for the same text, so that its classes are the same."""
    return load(written(lesson(number), source))


def merged(found: Lesson) -> tuple[str, list[str]]:
    """The student's file of a lesson with what it lacks, and the tasks that it lacks."""
    if not found.student.exists():
        return solution_of(found), found.tasks
    student = text_of(found.student)
    parsed(student, str(found.student))  # an error names the file
    missing = set(re.findall(r'raise Todo\("lesson (\d+\.\d+):', student))
    return put(solution_of(found), student), [task for task in found.tasks if task in missing]


def solution_of(found: Lesson) -> str:
    """The text of the solution, which the student edition has in a zip file."""
    if found.solution.exists():
        return found.solution.read_text(encoding="utf-8")
    with zipfile.ZipFile(SOLUTIONS) as archive:
        return archive.read(f"{found.name}.py").decode("utf-8")
