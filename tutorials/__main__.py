"""`python -m tutorials list | start N | check N | show N | release DIR | grade DIR`: the course on the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tutorials.implementation import STUDENT
from tutorials.lessons import Lesson, lesson, lessons
from tutorials.report import by_task, check, run


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 0 only if everything passed."""
    parser = argparse.ArgumentParser(prog="python -m tutorials", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="the lessons, and how far you are")
    for name, what in (("start", "write your file of a lesson"), ("check", "check it"), ("show", "show the solution")):
        sub = commands.add_parser(name, help=what)
        sub.add_argument("lesson", help="its number or name")
        if name == "check":
            sub.add_argument("--impl", help="student, solution, stub, wrong:NAME, or a path")
    release = commands.add_parser("release", help="for teachers: write the student edition, which has no solutions")
    release.add_argument("folder", type=Path)
    grade = commands.add_parser("grade", help="for teachers: a table over many submissions")
    grade.add_argument("folder", type=Path, help="FOLDER/NAME_OF_STUDENT/01_storage.py ...")
    options = parser.parse_args(arguments)
    try:
        return 1 if globals()[f"{options.command}_"](options) is False else 0
    except (LookupError, FileNotFoundError, FileExistsError) as error:
        parser.error(str(error))


def list_(options: argparse.Namespace) -> None:
    """Print all lessons."""
    for found in lessons():
        print(f"{found.number:2} {found.name:20} {state(found):14} {found.title}")


def state(found: Lesson) -> str:
    """How far a student is: "not started", "2 of 5 tasks", "done"."""
    if not found.student.exists():
        return "not started"
    tasks = by_task(run(found, STUDENT))
    passed = sum(task.outcome == "passed" for task in tasks)
    return "done" if passed == len(found.tasks) else f"{passed} of {len(found.tasks)} tasks"


def start_(options: argparse.Namespace) -> None:
    """Write the student's file; never over one that is there."""
    found = lesson(options.lesson)
    if found.student.exists():
        print(f"{found.student} is there already, and stays as it is")
        return
    found.student.write_text(found.stub, encoding="utf-8")
    print(f"wrote {found.student}\nread {found.folder / 'lesson.py'}, then: python -m tutorials check {found.number}")


def check_(options: argparse.Namespace) -> bool:
    """Check a lesson."""
    return check(options.lesson, options.impl)


def show_(options: argparse.Namespace) -> None:
    """Print the solution of a lesson."""
    found = lesson(options.lesson)
    if not found.solution.exists():
        raise FileNotFoundError(f"{found.name} has no solution here: the student edition comes without")
    print(found.solution.read_text(encoding="utf-8"))


def release_(options: argparse.Namespace) -> None:
    """Write the student edition."""
    from tutorials.teaching import release

    for path in release(options.folder):
        print(path)


def grade_(options: argparse.Namespace) -> None:
    """Grade submissions."""
    from tutorials.teaching import grade

    print(grade(options.folder))


if __name__ == "__main__":
    sys.exit(main())
