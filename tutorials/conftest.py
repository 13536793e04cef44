"""`pytest tutorials/01_storage --impl=solution`: the checks of a lesson, on the implementation that is asked for.

A check is a test with the fixture `impl`, the module that is checked, and the marker `task("1.2")`. The fixture `rng`
draws other numbers in each run; `--seed` repeats those of another.
"""

from __future__ import annotations

import json
import re
import secrets
import sysconfig
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import miniflow
import tutorials.compare
from tutorials.honesty import changed, fingerprint, forbidden
from tutorials.implementation import STUDENT, Todo, implementation, text_of
from tutorials.lessons import ROOT, Lesson
from tutorials.limits import at_most, limit_process

LIBRARIES = [Path(miniflow.__file__).parent, ROOT, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))]
LONGEST = 2000  # characters of a message
CHECKS = pytest.StashKey[dict[str, dict]]()
collect_ignore_glob = ["*/lesson.py", "*/solution.py", "*/student.py", "*/picture.py", "*/wrong/*"]
collect_ignore = [path.name for path in Path(__file__).parent.glob("*.py")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--impl", default=STUDENT, help="student, solution, stub, wrong:NAME, or the path of a file")
    parser.addoption("--seed", type=int, default=None, help="of the random inputs; by default another one in each run")
    parser.addoption("--seconds", type=float, default=None, help="limit the time of each check, and the memory of all")
    parser.addoption("--first", default=None, help="the task, such as 1.2, whose checks run before the others")
    parser.addoption("--task", default=None, help="run only the checks of this task, such as 1.2")
    parser.addoption("--report", default=None, help="write the checks and their outcomes to this file, as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "task(number): of a lesson, that this test checks")
    if config.getoption("--seed") is None:
        config.option.seed = secrets.randbits(32)
    if config.getoption("--seconds"):
        limit_process()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first, only = config.getoption("--first"), config.getoption("--task")
    if only is not None:
        items[:] = [item for item in items if task_of(item) == only]
    order = [first, *map(task_of, items)]
    items.sort(key=lambda item: order.index(task_of(item)))  # so that a task is done before the next


def task_of(item: pytest.Item) -> str:
    """The number of the task that a test checks."""
    return item.get_closest_marker("task").args[0]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Report what is going to be checked: a check without an outcome is one that the process did not live to see."""
    session.config.stash[CHECKS] = {
        item.module.__name__: fingerprint([tutorials.compare, np, item.module]) for item in session.items
    }
    for item in session.items:
        report(item, outcome="planned")


def report(item: pytest.Item, **outcome: str) -> None:
    """Append a line to the report, if one was asked for."""
    if path := item.config.getoption("--report"):
        entry = {"test": item.name, "task": task_of(item), **outcome}
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def pytest_report_header(config: pytest.Config) -> str:
    return f"implementation: {config.getoption('--impl')}, seed: {config.getoption('--seed')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Loading a submission takes its time, too."""
    with limit(item):
        return (yield)


def limit(item: pytest.Item) -> AbstractContextManager[None]:
    """A block that has to end in time, if a limit was asked for."""
    seconds = item.config.getoption("--seconds")
    return at_most(seconds) if seconds else nullcontext()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Fail a check whose task calls what it may not, or if the checks themselves were changed, before it or by it."""
    modules = [tutorials.compare, np, item.module]
    task, impl = task_of(item), item.funcargs.get("impl")
    names = getattr(item.module, "MAY_NOT_CALL", {}).get(task)
    if impl is not None and names:
        if found := forbidden(text_of(Path(impl.__file__)), Lesson(item.path.parent).stub, task, names):
            raise AssertionError(f"{found}, which task {task} may not use. Hint: write it yourself, that is the task")
    require_unchanged(item, modules)
    with limit(item):
        result = yield
    if "monkeypatch" not in item.fixturenames:
        require_unchanged(item, modules)
    return result


def require_unchanged(item: pytest.Item, modules: list[ModuleType]) -> None:
    """Fail if functions of the checks are not those that were there when the checks were read."""
    if found := changed(item.config.stash[CHECKS].get(item.module.__name__, {}), modules):
        raise AssertionError(f"{found} is not what it was: a submission may not change what checks it")


@pytest.fixture(scope="module")
def impl(request: pytest.FixtureRequest) -> ModuleType:
    return implementation(Lesson(request.path.parent), request.config.getoption("--impl"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.config.getoption("--seed"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    result = yield
    if result.when == "call" or result.failed or result.skipped:
        error = call.excinfo
        text = "" if error is None else message_of(error.value, item)
        report(
            item,
            outcome="skipped" if result.skipped else outcome_of(error),
            message=text if len(text) <= LONGEST else f"{text[:LONGEST]} ...",
            kind="" if error is None else error.typename,
            place=place_of(error, item.path),
            printed=result.capstdout[-LONGEST // 4 :],
        )
    return result


def message_of(error: BaseException, item: pytest.Item) -> str:
    """What an error says, without what pytest and Python add to it."""
    if isinstance(error, SyntaxError):
        return error.msg  # the file and the line are its place
    if type(error).__name__ == Todo.__name__ and (impl := item.funcargs.get("impl")):
        return message_of_todo(f"{error}", task_of(item), text_of(Path(impl.__file__)))
    return f"{error}".partition("\nassert ")[0]


def message_of_todo(message: str, task: str, source: str) -> str:
    """What is not written yet: the task itself, or only another one that the check needs.

    >>> message_of_todo("lesson 2.1: a sum", "2.4", 'raise Todo("lesson 2.1: a sum"); raise Todo("lesson 2.4: a walk")')
    'lesson 2.4: a walk'
    >>> message_of_todo("lesson 2.1: a sum", "2.4", 'raise Todo("lesson 2.1: a sum")')
    'it needs what is not written yet, lesson 2.1: a sum'
    """
    own = re.search(rf'raise Todo\("(lesson {re.escape(task)}: .*)"\)', source)
    return own[1] if own else f"it needs what is not written yet, {message}"


def outcome_of(error: pytest.ExceptionInfo | None) -> str:
    """What a check says: "passed", "wrong", "not started" or "error"."""
    if error is None:
        return "passed"
    if error.typename == Todo.__name__:
        return "not started"
    return "wrong" if error.errisinstance(AssertionError) else "error"


def place_of(error: pytest.ExceptionInfo | None, tests: Path) -> str:
    """The last line of the implementation that an error came through: `student.py:12`; none of a library."""
    if error is None:
        return ""
    found = [(Path(entry.path), entry.lineno + 1) for entry in error.traceback]
    if isinstance(error.value, SyntaxError) and error.value.lineno:
        found.append((Path(error.value.filename or ""), error.value.lineno))
    own = [(path, line) for path, line in found if path.name == "student.py" or is_own(path, tests)]
    if not own:
        return ""
    path, line = own[-1]
    of_another = path.name == "student.py" and path.parent != tests.parent  # a lesson that this one builds on
    return f"{path.parent.name}/{path.name}:{line}" if of_another else f"{path.name}:{line}"


def is_own(path: Path, tests: Path) -> bool:
    """Whether it is a file, and neither of the course nor of a library."""
    return path.is_file() and not any(path.is_relative_to(folder) for folder in (tests.parent, *LIBRARIES))
