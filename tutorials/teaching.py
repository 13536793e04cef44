"""For teachers: the edition that students get, and grades for many submissions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tutorials.lessons import ROOT, lessons
from tutorials.report import by_task, run

LEFT_OUT = ("TEACHING.md", "solution.py", "student.py", "wrong", "equivalent.txt", "__pycache__")
LIMITS = (60, 4 << 30)  # of a submission: seconds of CPU time, and bytes of memory


def release(folder: Path) -> Iterator[Path]:
    """Write the course without its solutions, with the file of each lesson for students to fill in.

    Raises:
        FileExistsError: for a folder that is there.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; expected the name of a new folder")
    shutil.copytree(ROOT, folder / "tutorials", ignore=shutil.ignore_patterns(*LEFT_OUT))
    for found in lessons():
        target = folder / "tutorials" / found.name / "student.py"
        target.write_text(found.stub, encoding="utf-8")
        notebook = ROOT.parent / "notebooks" / f"{found.name}.ipynb"
        if notebook.exists():
            (folder / "notebooks").mkdir(exist_ok=True)
            shutil.copy(notebook, folder / "notebooks")
        yield target


def grade(folder: Path) -> str:
    """A table of the tasks that each submission passes: `FOLDER/NAME_OF_STUDENT/01_storage.py`.

    Each submission is checked in a process of its own, with limits of time and memory.

    Raises:
        FileNotFoundError: if there is no submission.
    """
    students = sorted(path for path in folder.iterdir() if path.is_dir())
    known = {found.name: found for found in lessons()}
    rows = []
    for student in students:
        for path in sorted(student.glob("[0-9][0-9]_*.py")):
            if path.stem in known:
                limits = [f"--limits={LIMITS[0]},{LIMITS[1]}"]
                tasks = by_task(run(known[path.stem], str(path.resolve()), options=limits, limit=2 * LIMITS[0]))
                passed = [task.task for task in tasks if task.outcome == "passed"]
                rest = "; ".join(str(task) for task in tasks if task.outcome != "passed")
                rows.append(
                    f"| {student.name} | {path.stem} | {len(passed)} of {len(known[path.stem].tasks)} | {rest} |"
                )
    if not rows:
        raise FileNotFoundError(f"there is no submission in {folder}; expected {folder}/NAME_OF_STUDENT/01_storage.py")
    return "\n".join(["| student | lesson | tasks passed | not passed |", "|---|---|---|---|", *rows])
