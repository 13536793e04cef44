"""`python -m tutorials list | start N | check N | show N`, and `release | collect | grade | feedback` for teachers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tutorials.lessons import ROOT, Lesson, lesson, lessons
from tutorials.report import Stopped, check, remembered

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 0 only if everything passed."""
    parser = argparse.ArgumentParser(prog="python -m tutorials", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="the lessons, and how far you are")
    for name, what in (("start", "write your file of a lesson"), ("check", "check it"), ("show", "show the solution")):
        sub = commands.add_parser(name, help=what)
        sub.add_argument("lesson", help="its number or name" + " or one of its tasks, such as 1.2" * (name == "check"))
        if name == "check":
            sub.add_argument("--picture", type=picture, metavar="FILE", help="draw what a notebook would show")
            sub.add_argument("--impl", help="student, solution, stub, wrong:NAME, or a path")
    if (ROOT / "teaching.py").exists():  # which the student edition does not have
        add_teaching(commands)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return 1 if globals()[f"{options.command}_"](options) is False else 0
    except (LookupError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt as error:
        print(f"\n{error}" if isinstance(error, Stopped) else "\nstopped by Ctrl-C", file=sys.stderr)
        return INTERRUPTED


def picture(name: str) -> Path:
    """The file of a picture.

    Raises:
        ArgumentTypeError: where none can be written.
    """
    path = Path(name)
    if path.suffix not in (".png", ".svg", ".pdf", ".jpg") or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"got {name!r}; expected a name such as lesson.png, in a folder that is there")
    return path


def add_teaching(commands: Any) -> None:
    """The commands for teachers."""
    from tutorials.teaching import INSTALL

    release = commands.add_parser("release", help="for teachers: write the student edition, which has no solutions")
    release.add_argument("folder", type=Path)
    release.add_argument("--install", default=INSTALL, metavar="LINE", help="by which students install miniflow")
    collect = commands.add_parser("collect", help="for teachers: sort submissions into folders")
    collect.add_argument("source", type=Path, help="a folder or a zip file for each student")
    collect.add_argument("folder", type=Path, help="becomes FOLDER/NAME_OF_STUDENT/01_storage.py ...")
    for name, what in (("grade", "a table over many submissions"), ("feedback", "a file for each student, of grades")):
        sub = commands.add_parser(name, help=f"for teachers: {what}")
        sub.add_argument("folder", type=Path, help="FOLDER/NAME_OF_STUDENT/01_storage.py ...")


def list_(options: argparse.Namespace) -> None:
    """Print all lessons."""
    for found in lessons():
        print(f"{found.number:2} {found.name:22} {state(found):14} {found.title}")


def state(found: Lesson) -> str:
    """How far a student is: "not started", "2 of 5 tasks", "done"."""
    if not found.student.exists():
        return "not started"
    tasks = remembered(found)
    passed = sum(task.outcome == "passed" for task in tasks)
    return "done" if passed == len(found.tasks) else f"{passed} of {len(found.tasks)} tasks"


def start_(options: argparse.Namespace) -> None:
    """Write the student's file; never over one that is there."""
    found = lesson(options.lesson)
    if found.student.exists():
        print(f"{found.student} is there already, and stays as it is")
        return
    found.student.write_text(found.stub, encoding="utf-8")
    print(
        f"wrote {found.student}\nread and solve notebooks/{found.name}.ipynb, whose cells write to that file and check "
        f"it\nor edit it yourself, then: python -m tutorials check {found.number}"
    )


def check_(options: argparse.Namespace) -> bool:
    """Check a lesson, or one task."""
    return check(options.lesson, options.impl, options.picture)


def show_(options: argparse.Namespace) -> None:
    """Print the solution of a lesson."""
    found = lesson(options.lesson)
    if not found.solution.exists():
        raise FileNotFoundError(f"{found.name} has no solution here: the student edition comes without")
    print(found.solution.read_text(encoding="utf-8"))


def release_(options: argparse.Namespace) -> None:
    """Write the student edition."""
    from tutorials.teaching import release

    for path in release(options.folder, options.install):
        print(path)


def collect_(options: argparse.Namespace) -> None:
    """Sort submissions into folders."""
    from tutorials.teaching import collect

    print(*collect(options.source, options.folder), sep="\n")


def feedback_(options: argparse.Namespace) -> None:
    """Write a file for each student."""
    from tutorials.teaching import feedback

    print(*feedback(options.folder), sep="\n")


def grade_(options: argparse.Namespace) -> None:
    """Grade submissions; how far it is goes to standard error."""
    from tutorials.teaching import grade

    print(grade(options.folder, lambda one: print(one, file=sys.stderr)))


if __name__ == "__main__":
    sys.exit(main())
