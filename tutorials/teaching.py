"""For teachers: the edition that students get, their submissions, grades, and what each student is told."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tutorials.lessons import ROOT, Lesson, lesson, lessons
from tutorials.own import PARTS, SOLUTIONS
from tutorials.report import Outcome, by_task, run

TEACHERS = ("TEACHING.md", "teaching.py", "mutants.py", "build.py", "solution.py", "wrong", "equivalent.txt")
LEFT_OUT = (*TEACHERS, "student.py", ".checked.json", "__pycache__")
INSTALL = 'pip install "miniflow-edu[notebooks]"'
README = """# A course in building a deep-learning framework

The lessons of miniflow, for students: {count} notebooks, each with tasks and checks. They need Python 3.10 or newer,
and run on a CPU without a network. Install miniflow, and begin, in this folder:

    {install}
    python -m tutorials list
    jupyter lab notebooks/00_quickstart.ipynb

Run the cells from the first one on. Those that begin with `%%task` are for you: put your code in the place of `raise
Todo(...)`, and run the cell. It writes to `tutorials/NN_name/student.py`, your file of the lesson, and checks the task.
Without a notebook do the same by

    python -m tutorials start 1
    python -m tutorials check 1

and an editor. Hand in the files `student.py`, or the folder `tutorials` with all of them.
"""


@dataclass(frozen=True)
class Grade:
    """A submission of one lesson.

    Attributes:
        student: the name of the folder.
        lesson: what was checked.
        outcomes: of each task of the lesson, in its order.
    """

    student: str
    lesson: Lesson
    outcomes: list[Outcome]

    @property
    def points(self) -> int:
        """One for each task that passed."""
        return sum(outcome.outcome == "passed" for outcome in self.outcomes)

    @property
    def of(self) -> int:
        """How many tasks the lesson has."""
        return len(self.lesson.tasks)

    def __str__(self) -> str:
        return f"{self.student}, {self.lesson.name}: {self.points} of {self.of}"


def release(folder: Path, install: str = INSTALL) -> Iterator[Path]:
    """Write the course without its solutions and without what is for teachers, with what `start` writes.

    Args:
        folder: where to.
        install: the line by which students install miniflow, for the README.

    Raises:
        FileExistsError: for a folder that is there.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; expected the name of a new folder")
    shutil.copytree(ROOT, folder / "tutorials", ignore=shutil.ignore_patterns(*LEFT_OUT))
    (folder / "README.md").write_text(README.format(count=len(lessons()), install=install), encoding="utf-8")
    shutil.copy(ROOT.parent / "LICENSE", folder)
    with zipfile.ZipFile(folder / "tutorials" / SOLUTIONS.name, "w") as archive:  # which the last lesson needs
        for number in PARTS:
            archive.write(lesson(number).solution, f"{lesson(number).name}.py")
    for found in lessons():
        target = folder / "tutorials" / found.name / "stub.py"
        target.write_text(found.stub, encoding="utf-8")
        notebook = ROOT.parent / "notebooks" / f"{found.name}.ipynb"
        if notebook.exists():
            (folder / "notebooks").mkdir(exist_ok=True)
            shutil.copy(notebook, folder / "notebooks")
        yield target


def collect(source: Path, folder: Path) -> Iterator[str]:
    """Copy submissions to `FOLDER/NAME_OF_STUDENT/01_storage.py`, where `grade` expects them.

    Args:
        source: a folder with a folder or a zip file for each student, named by it; what they contain is looked through
            for `01_storage.py`, `01_storage/student.py`, or `student.py` as `start` writes it, of any lesson.
        folder: where to.

    Returns:
        what was found, a line for each student.

    Raises:
        FileNotFoundError: if there is no such folder, or nobody in it.
    """
    entries = sorted(path for path in source.iterdir() if path.is_dir() or path.suffix == ".zip")
    if not entries:
        raise FileNotFoundError(f"there is no submission in {source}; expected a folder or a zip file for each student")
    for entry in entries:
        student = entry.name if entry.is_dir() else entry.stem
        taken, reason = {}, "expected files such as 01_storage/student.py"
        try:
            for name, text in files_of(entry):
                taken |= {found.name: text for found in lessons() if is_of(found, name, text)}
        except zipfile.BadZipFile as error:
            reason = f"{error}"
        for name, text in taken.items():
            target = folder / student / f"{name}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
        yield f"{student}: {', '.join(sorted(taken)) or f'nothing: {reason}'}"


def is_of(found: Lesson, name: str, text: bytes) -> bool:
    """Whether a file is the student's of a lesson: by its path, or `student (2).py` by its first line."""
    if re.search(rf"(^|/){found.name}(\.py|/student\.py)$", name):
        return True
    says = re.search(rb"python -m tutorials check (\d+)", text.partition(b"\n")[0])
    return bool(re.search(r"(^|/)student[^/]*\.py$", name) and says and int(says[1]) == found.number)


def files_of(entry: Path) -> Iterator[tuple[str, bytes]]:
    """Names, with / between folders, and contents of the Python files in a folder or a zip file."""
    if entry.is_dir():
        for path in sorted(entry.rglob("*.py")):
            yield path.relative_to(entry).as_posix(), path.read_bytes()
    else:
        with zipfile.ZipFile(entry) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".py"):
                    yield name, archive.read(name)


def grades(folder: Path, tell: Callable[[Grade], object] = lambda grade: None) -> list[Grade]:
    """Check all submissions, `FOLDER/NAME_OF_STUDENT/01_storage.py`, each in a process with limits of time and memory.

    Args:
        folder: with the submissions.
        tell: called with each grade as soon as it is known.

    Raises:
        FileNotFoundError: if there is no submission.
    """
    known, found = {one.name: one for one in lessons()}, []
    for path in sorted(folder.glob("*/[0-9][0-9]_*.py")):
        if path.stem in known:
            outcomes = by_task(run(known[path.stem], str(path.resolve())))
            found.append(Grade(path.parent.name, known[path.stem], whole(known[path.stem], outcomes)))
            tell(found[-1])
    if not found:
        raise FileNotFoundError(f"there is no submission in '{folder}'; expected NAME_OF_STUDENT/01_storage.py there")
    return found


def whole(of: Lesson, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """An outcome for each task of the lesson; what was skipped, or is of no task, is an error of the task or of all."""
    known = {outcome.task: outcome for outcome in outcomes}
    stray = known.get("", Outcome("", "error", "not checked", ""))
    return [known.get(task, Outcome(task, stray.outcome, stray.message, "")) for task in of.tasks]


def grade(folder: Path, tell: Callable[[Grade], object] = lambda grade: None) -> str:
    """Check all submissions, and write grades.json, grades.csv and grades.md to the folder; the last one's text."""
    found = grades(folder, tell)
    texts = {"json": as_json(found), "csv": as_csv(found), "md": as_markdown(found)}
    for suffix, text in texts.items():
        (folder / f"grades.{suffix}").write_text(text, encoding="utf-8", newline="")
    return texts["md"]


def as_markdown(found: Iterable[Grade]) -> str:
    """A table: a row for each submission, with the tasks that did not pass."""
    rows = ["| student | lesson | tasks passed | not passed |", "|---|---|---|---|"]
    for one in found:
        rest = "; ".join(str(replace(each, printed="")) for each in one.outcomes if each.outcome != "passed")
        cells = [one.student, one.lesson.name, f"{one.points} of {one.of}", rest]
        rows.append(f"| {' | '.join(map(in_table, cells))} |")
    return "\n".join(rows)


def in_table(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def as_csv(found: Iterable[Grade]) -> str:
    """A line for each task: student, lesson, task, points, of how many, outcome, message."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["student", "lesson", "task", "points", "of", "outcome", "message"])
    for one in found:
        for outcome in one.outcomes:
            row = [one.student, one.lesson.name, outcome.task, points(outcome), 1, outcome.outcome, outcome.message]
            writer.writerow([in_spreadsheet(cell) for cell in row])
    return file.getvalue()


def in_spreadsheet(cell: str | int) -> str | int:
    """A cell that no spreadsheet takes for a formula: a submission chooses its messages."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


def as_json(found: Iterable[Grade]) -> str:
    """Student -> lesson -> points, of how many, and the tasks with points, outcome and message."""
    table: dict[str, dict] = {}
    for one in found:
        tasks = {
            outcome.task: {"points": points(outcome), "outcome": outcome.outcome, "message": outcome.message}
            for outcome in one.outcomes
        }
        entry = {"title": one.lesson.title, "points": one.points, "of": one.of, "tasks": tasks}
        table.setdefault(one.student, {})[one.lesson.name] = entry
    return json.dumps(table, indent=1) + "\n"


def points(outcome: Outcome) -> int:
    """1 for a task that passed, else 0."""
    return int(outcome.outcome == "passed")


def feedback(folder: Path) -> Iterator[Path]:
    """Write FOLDER/NAME_OF_STUDENT/feedback.md of the grades.json that `grade` wrote.

    Raises:
        FileNotFoundError: before `grade`.
    """
    path = folder / "grades.json"
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; first run: python -m tutorials grade {folder}")
    for student, of in json.loads(path.read_text(encoding="utf-8")).items():
        lines = [f"# {student}", ""]
        for name, entry in of.items():
            lines += [f"## {name}: {entry['title']}", "", f"{entry['points']} of {entry['of']} tasks", ""]
            for task, said in entry["tasks"].items():
                lines.append(f"- {task}: {said['outcome']}")
                if said["message"]:
                    lines += ["", *(f"      {line}" for line in said["message"].splitlines()), ""]
            lines.append("")
        target = folder / student / "feedback.md"
        target.write_text("\n".join(lines), encoding="utf-8")
        yield target
