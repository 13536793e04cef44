"""Run the checks of a lesson, and tell a student how it went."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tutorials.implementation import default, implementation, load, path_of
from tutorials.lessons import ROOT, Lesson, lesson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMIT = 120  # seconds for all checks of a lesson
ORDER = ("error", "wrong", "not started", "passed")
# processes that start with what takes two seconds to import, where the system can copy a process
PROCESSES = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
PROCESSES.set_forkserver_preload(["miniflow", "numba.core.registry", "pytest"])


@dataclass(frozen=True)
class Outcome:
    """How one check, or all of one task, went.

    Attributes:
        task: "1.2".
        outcome: "passed", "wrong", "not started" or "error".
        message: why.
        test: the name of the check.
    """

    task: str
    outcome: str
    message: str
    test: str

    def __str__(self) -> str:
        return f"{self.task:6} {self.outcome:12}" + (f" {self.message}" if self.message else "")


def run(of: Lesson, which: str, *, options: Iterable[str] = (), limit: float = LIMIT) -> list[Outcome]:
    """The outcomes of all checks of a lesson, which run in a process of their own.

    Args:
        of: the lesson.
        which: the implementation, see `implementation`.
        options: for pytest.
        limit: in seconds; what has not ended then is an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, printed = Path(folder) / "report", Path(folder) / "printed"
        arguments = [str(of.tests), f"--impl={which}", f"--report={report}", f"--rootdir={ROOT.parent}", *options]
        process = PROCESSES.Process(target=run_pytest, args=(arguments, printed))
        start_alone(process)
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
            end = f"not done after {limit:.0f} seconds: is there a loop without an end?"
        else:
            end = "" if process.exitcode in (0, 1) else ended_by(process.exitcode)  # 1: some checks failed
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        text = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
    entries = [json.loads(line) for line in lines]
    if not entries:  # the checks could not be read
        return [Outcome(task, "error", f"{end}\n{text[-2000:]}".strip(), "") for task in of.tasks]
    return complete(entries, end)


def start_alone(process: BaseProcess) -> None:
    """Start a process that does not run the program of this one again, as multiprocessing does by default."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main


def run_pytest(arguments: list[str], printed: Path) -> None:
    """Run pytest from the folder above the lessons; what it prints goes to a file."""
    with printed.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(ROOT.parent)
    sys.path.insert(0, str(ROOT.parent))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins that are installed take a second to load
    sys.exit(pytest.main([*arguments, "-q", "--tb=native", "-p", "no:cacheprovider"]))


def complete(entries: list[dict], end: str) -> list[Outcome]:
    """The outcome of every check that was planned: an error for those at which, or before which, the process ended.

    Args:
        entries: what `conftest` wrote.
        end: how the process ended; "" if it ended by itself.
    """
    found = [outcome_of(entry) for entry in entries if entry["outcome"] not in ("planned", "skipped")]
    reported = {entry["test"] for entry in entries if entry["outcome"] != "planned"}
    lost = [entry for entry in entries if entry["test"] not in reported]
    for number, entry in enumerate(lost):
        why = end or "the process ended in this check, as by os._exit()"
        message = why if number == 0 else f"not checked, since the process ended in {lost[0]['test']}"
        found.append(Outcome(entry["task"], "error", message, entry["test"]))
    if end and not lost:
        found.append(Outcome("", "error", f"after all checks: {end}", ""))
    return found


def ended_by(status: int) -> str:
    """How a process ended, in words; `status` is negative for a signal."""
    if status < 0:
        return f"{signal.Signals(-status).name} ended the process: a crash, or more time or memory than it may use"
    return f"the process ended with exit status {status}"


def outcome_of(entry: dict) -> Outcome:
    """The outcome that `conftest` wrote."""
    message = entry["message"] if entry["outcome"] != "passed" else ""
    if entry["outcome"] == "error":
        place = f" ({entry['place']})" if entry["place"] else ""
        message = f"{entry['kind']}: {message}{place}"
    return Outcome(entry["task"], entry["outcome"], message, entry["test"])


def by_task(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """One outcome for each task: that of the first check that did not pass."""
    tasks: dict[str, Outcome] = {}
    for found in outcomes:
        known = tasks.setdefault(found.task, found)
        if ORDER.index(found.outcome) < ORDER.index(known.outcome):
            tasks[found.task] = found
    return list(tasks.values())


def remembered(found: Lesson) -> list[Outcome]:
    """One outcome for each task of the student's file: those of the last check, if nothing changed since."""
    path, key = found.folder / ".checked.json", digest(found)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if known.get("digest") != key:
        known = {"digest": key, "tasks": [asdict(task) for task in by_task(run(found, str(found.student)))]}
        path.write_text(json.dumps(known), encoding="utf-8")
    return [Outcome(**task) for task in known["tasks"]]


def digest(found: Lesson) -> str:
    """A hash of the student's file, and of all that checks it."""
    hashed = hashlib.sha256()
    for path in sorted([*found.folder.glob("*.py"), *ROOT.glob("*.py")]):
        hashed.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return hashed.hexdigest()


def tasks_of(found: Lesson, path: str, task: str | None = None) -> list[Outcome]:
    """One outcome for each task of a lesson, or that of one task."""
    tasks = by_task(run(found, path, options=[f"--task={task}"] if task else []))
    return [one for one in tasks if task is None or one.task in (task, "")]


def check(which: int | str, implementation_of: str | None = None, picture: str | Path | None = None) -> bool:
    """Check a lesson, 6, or one of its tasks, "6.8", and print one line for each task.

    Args:
        which: the lesson, or the task.
        implementation_of: see `implementation`.
        picture: the file for the picture, of a task or of a lesson whose tasks are all right. A notebook shows it.

    Returns:
        whether all of it passed.
    """
    found, task = lesson(which), str(which) if "." in str(which) else None
    if task and task not in found.tasks:
        raise LookupError(f"lesson {found.name} has no task {task!r}; expected one of {found.tasks}")
    path = path_of(found, implementation_of or default()).resolve()
    own = path == found.student.resolve() and not task
    if own:
        (found.folder / ".checked.json").unlink(missing_ok=True)  # other random inputs in each run
    tasks = remembered(found) if own else tasks_of(found, str(path), task)
    print("\n".join(map(str, tasks)))
    passed = all(task.outcome == "passed" for task in tasks)
    if "ipykernel" in sys.modules or picture:
        drawn = None
        if task:
            drawn = attempts_drawn(found, task, {"this attempt": path})
        elif passed:
            drawn = load(found.folder / "picture.py").draw(implementation(found, str(path)))
        if picture and drawn is None:
            print(f"no picture: {'the task has none' if task else 'it is drawn when all tasks pass'}")
        elif picture:
            drawn.savefig(picture)
    return passed


def attempts_drawn(found: Lesson, task: str, attempts: dict[str, Path]) -> Figure | None:
    """The picture of one task; None if it has none, or if no attempt gets far enough to be drawn.

    A lesson whose `picture.py` has `draw_task` says what of each attempt is seen.

    Args:
        found: the lesson.
        task: its task.
        attempts: title -> file; the last one is what was just checked.
    """
    module = load(found.folder / "picture.py")
    if hasattr(module, "draw_task"):
        return module.draw_task(task, {title: load(path) for title, path in attempts.items()})
    return None
