"""Run the checks of a lesson, and tell a student how it went."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tutorials.implementation import LACKS, STUDENT, default, implementation, load, loaded, path_of
from tutorials.lessons import ROOT, Lesson, lesson_and_task
from tutorials.limits import MEMORY, PRINTED, seconds_of, too_long

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = 0.05  # seconds between two looks at what a process reports
PATIENCE = 10  # seconds until a check is said to be running
FAREWELL = 60  # seconds until a process is ended, after its last check or if a check does not stop at its limit
ORDER = ("error", "wrong", "not started", "passed")
# processes that start with what takes two seconds to import, where the system can copy a process
PROCESSES = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
PROCESSES.set_forkserver_preload(["miniflow", "numba.core.registry", "pytest"])


@dataclass(frozen=True)
class Outcome:
    """How one check, or all of one task, went.

    Attributes:
        task: "1.2".
        outcome: "passed", "wrong", "not started" or "error"; "running" while it is checked.
        message: why.
        test: the name of the check.
        printed: the end of what the student's code printed in it.
    """

    task: str
    outcome: str
    message: str
    test: str
    printed: str = ""

    def __str__(self) -> str:
        text = f"{self.task:6} {self.outcome:12}" + (f" {self.message}" if self.message else "")
        return "\n".join([text, *(f"       | {line}" for line in self.printed.splitlines())])


class Stopped(KeyboardInterrupt):
    """Somebody pressed Ctrl-C while checks ran."""


def run(
    of: Lesson,
    which: str,
    *,
    options: Iterable[str] = (),
    limit: float | None = None,
    tell: Callable[[Outcome], object] = lambda task: None,
) -> list[Outcome]:
    """The outcomes of all checks of a lesson, which run in a process of their own, with limits of time and memory.

    Args:
        of: the lesson.
        which: the implementation, see `implementation`.
        options: for pytest.
        limit: of each check, in seconds, instead of the lesson's; what has not ended then is an error.
        tell: called with the outcome of each task as soon as its checks have ended, and of one that takes long.

    Raises:
        Stopped: by Ctrl-C.
    """
    limit = limit or seconds_of(of)
    with tempfile.TemporaryDirectory() as folder:
        report, printed = Path(folder) / "report", Path(folder) / "printed"
        arguments = [str(of.tests), f"--impl={which}", f"--report={report}", f"--rootdir={ROOT.parent}"]
        process = PROCESSES.Process(target=run_pytest, args=([*arguments, f"--seconds={limit}", *options], printed))
        start_alone(process)
        told: set[str] = set()
        try:
            end = followed(process, report, limit, told, tell)
        except KeyboardInterrupt:
            raise Stopped("stopped by Ctrl-C: what has no line above was not checked") from None
        finally:
            kill(process)
        entries = reported(report)
        text = printed.read_bytes()[-2000:].decode(errors="replace") if printed.exists() else ""
    if entries:
        outcomes = complete(entries, end)
    else:  # the checks could not be read
        outcomes = [Outcome(task, "error", f"{end}\n{text}".strip(), "") for task in of.tasks]
    tell_new(outcomes, told, tell)
    return outcomes


def followed(
    process: BaseProcess, report: Path, limit: float, told: set[str], tell: Callable[[Outcome], object]
) -> str:
    """Wait for a process, and tell what it reports; the result says how it ended, "" if by itself."""
    entries, since, waiting = [], time.monotonic(), False
    while process.is_alive():
        process.join(STEP)
        if len(fresh := reported(report)) > len(entries):
            entries, since, waiting = fresh, time.monotonic(), False
            open_tasks = {entry["task"] for entry in lost(entries)}
            tell_new([one for one in outcomes_of(entries) if one.task not in open_tasks], told, tell)
        seconds = time.monotonic() - since
        if entries and not lost(entries) and seconds > FAREWELL:
            return f"the process did not end within {FAREWELL} seconds: does a thread of yours still run?"
        if seconds > limit + FAREWELL:
            return too_long(limit)
        if (due := lost(entries)) and seconds > PATIENCE and not waiting:
            waiting = True
            tell(Outcome(due[0]["task"], "running", f"it is stopped after {limit:g} seconds, or by Ctrl-C", ""))
    return "" if process.exitcode in (0, 1) else ended_by(process.exitcode)  # 1: some checks failed


def tell_new(outcomes: Iterable[Outcome], told: set[str], tell: Callable[[Outcome], object]) -> None:
    """Tell the outcomes of tasks that were not told before."""
    for one in by_task(outcomes):
        if one.task not in told:
            told.add(one.task)
            tell(one)


def kill(process: BaseProcess) -> None:
    """End a process, and those that it started and left."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet, or nobody is in it
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def reported(report: Path) -> list[dict]:
    """What `conftest` wrote up to now, but for a line that it is just writing."""
    lines = report.read_text(encoding="utf-8").split("\n")[:-1] if report.exists() else []
    return [json.loads(line) for line in lines]


def lost(entries: Iterable[dict]) -> list[dict]:
    """The checks that were planned and have no outcome."""
    done = {entry["test"] for entry in entries if entry["outcome"] != "planned"}
    return [entry for entry in entries if entry["test"] not in done]


def start_alone(process: BaseProcess) -> None:
    """Start a process that does not run the program of this one again, as multiprocessing does by default."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main


def run_pytest(arguments: list[str], printed: Path) -> None:
    """Run pytest from the folder above the lessons; what it prints goes to a file."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # those that it starts can be ended with it, and Ctrl-C is for the one that waits
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
    found, missing = outcomes_of(entries), lost(entries)
    for number, entry in enumerate(missing):
        why = end or "the process ended in this check, as by os._exit()"
        message = why if number == 0 else f"not checked, since the process ended in {missing[0]['test']}"
        found.append(Outcome(entry["task"], "error", message, entry["test"]))
    if end and not missing:
        found.append(Outcome("", "error", f"after all checks: {end}", ""))
    return found


def outcomes_of(entries: Iterable[dict]) -> list[Outcome]:
    """The outcomes of the checks that ended."""
    return [outcome_of(entry) for entry in entries if entry["outcome"] not in ("planned", "skipped")]


def ended_by(status: int) -> str:
    """How a process ended, in words; `status` is negative for a signal."""
    if status < 0:
        why = "a crash, as by a recursion without an end, or too much memory"
        return f"{signal.Signals(-status).name} ended the process: {why}"
    return f"the process ended with exit status {status}"


def outcome_of(entry: dict) -> Outcome:
    """The outcome that `conftest` wrote."""
    message = entry["message"] if entry["outcome"] != "passed" else ""
    if entry["outcome"] == "error":
        place = f" ({entry['place']})" if entry["place"] else ""
        message = f"{entry['kind']}: {explained(**entry)}{place}"
    return Outcome(entry["task"], entry["outcome"], message, entry["test"], entry.get("printed", ""))


KERNEL = "a plain function stands where a kernel is expected: is there no `@cuda.jit` above it?"
EXPLAINED = {  # kind of an error, and a part of its message that the meaning takes the place of
    ("AttributeError", "'function' object has no attribute 'py_func'"): KERNEL,
    ("TypeError", "'function' object is not subscriptable"): KERNEL,
    ("OSError", "reading from stdin"): "nobody answers input() in a check; take what you need as arguments",
    ("OSError", "File too large"): f"a check may print {PRINTED >> 20} MB: is there a loop without an end?",
}
MEANT = {  # kind of an error -> what is added
    "SystemExit": "your code ends the program; return, or raise another error",
    "RecursionError": "does a function call itself without an end?",
    "MemoryError": f"a check may use {MEMORY >> 30} GB of memory",
}
OF_RESULTS = ("AttributeError", "TypeError", "ValueError", "IndexError", "KeyError")


def explained(kind: str, message: str, place: str, **_: str) -> str:
    """The message of an error and what it means in a check; pytest's advice, which is not for students, is left out."""
    for (known, part), meaning in EXPLAINED.items():
        if kind == known and part in message:
            return meaning
    meaning = MEANT.get(kind)
    if kind in OF_RESULTS and not place and LACKS not in message:  # raised by the check
        nothing = "does a function return nothing?" if "NoneType" in message else "is it a result of another type?"
        meaning = f"the check cannot use what your code returned: {nothing}"
    return f"{message}: {meaning}" if message and meaning else meaning or message


def by_task(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """One outcome for each task: that of the first check that did not pass."""
    tasks: dict[str, Outcome] = {}
    for found in outcomes:
        known = tasks.setdefault(found.task, found)
        if ORDER.index(found.outcome) < ORDER.index(known.outcome):
            tasks[found.task] = found
    return list(tasks.values())


def remembered(found: Lesson, tell: Callable[[Outcome], object] = lambda task: None) -> list[Outcome]:
    """One outcome for each task of the student's file: those of the last check, if nothing changed since.

    Args:
        found: the lesson.
        tell: see `run`; nothing is told of what is remembered.
    """
    path, key = found.folder / ".checked.json", digest(found)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if known.get("digest") != key:
        known = {"digest": key, "tasks": [asdict(task) for task in by_task(run(found, str(found.student), tell=tell))]}
        path.write_text(json.dumps(known), encoding="utf-8")
    return [Outcome(**task) for task in known["tasks"]]


def digest(found: Lesson) -> str:
    """A hash of the student's file, and of all that checks it."""
    hashed = hashlib.sha256()
    for path in sorted([*found.folder.glob("*.py"), *ROOT.glob("*.py")]):
        hashed.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return hashed.hexdigest()


def print_now(task: Outcome) -> None:
    """Print an outcome at once, also where output is collected; what is no outcome yet goes beside it."""
    print(task, flush=True, file=sys.stderr if task.outcome == "running" else sys.stdout)


def tasks_of(found: Lesson, path: str, task: str | None = None) -> list[Outcome]:
    """One outcome for each task of a lesson, or that of one task; printed as they come."""
    wanted = (*found.tasks, "") if task is None else (task, "")
    outcomes = run(
        found,
        path,
        options=[f"--task={task}"] if task else [],
        tell=lambda one: print_now(one) if one.task in wanted else None,
    )
    return [one for one in by_task(outcomes) if one.task in wanted]


def check(which: int | str, implementation_of: str | None = None, picture: str | Path | None = None) -> bool:
    """Check a lesson, 6, or one of its tasks, "6.8", and print one line for each task as soon as it is checked.

    Args:
        which: the lesson, or the task.
        implementation_of: see `implementation`.
        picture: the file for the picture, of a task or of a lesson whose tasks are all right. A notebook shows it.

    Returns:
        whether all of it passed.

    Raises:
        LookupError: for an unknown lesson or task.
        FileNotFoundError: if there is no such file.
        Stopped: by Ctrl-C.
    """
    found, task = lesson_and_task(which)
    asked = implementation_of or default()
    if asked == STUDENT and not found.student.exists():
        print(f"you have no file of lesson {found.number} yet: run `python -m tutorials start {found.number}` first")
        return False
    path = path_of(found, asked).resolve()
    own = path == found.student.resolve() and not task
    if own:
        (found.folder / ".checked.json").unlink(missing_ok=True)  # other random inputs in each run
    tasks = remembered(found, print_now) if own else tasks_of(found, str(path), task)
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
    modules = {title: loaded(path) for title, path in attempts.items()}
    modules = {title: one for title, one in modules.items() if one is not None}
    return module.draw_task(task, modules) if modules and hasattr(module, "draw_task") else None
