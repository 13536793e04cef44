"""Rules for all tests: a test that made no comparison is an error, and the fresh seed is printed."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checks
import numpy as np
import pytest
from asserts import certainly_asserts

import miniflow as flow
from miniflow.hostcuda.kernel import Kernel

ON_EVERY_DEVICE = (
    "amp",
    "autograd",
    "nn",
    "ops",
    "optim",
)  # folders whose tests run on every device; also modules that say so

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script: programs of tests heed Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["scripts"]  # programs that peers/test_scripts.py runs
LEFT_OUT = ("slow", "peers", "ptx", "notebooks")  # markers whose tests `pytest` alone does not run
PEERS = Path(__file__).parent / "peers"
COUNTS = pytest.StashKey[Counter]()
# for machines where all of them take too long: of the cases of each test only one in so many runs
SHARE = int(os.environ.get("MINIFLOW_TEST_SHARE", "1"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=("all", "cpu", "cuda"), default="all", help="run the tests of ops on this device only"
    )
    parser.addoption("--all", action="store_true", help=f"also run the tests marked {', '.join(LEFT_OUT)}")


def runs_everything(config: pytest.Config) -> bool:
    """Whether no file or folder was named; the workers of xdist, which are given the folders, are told."""
    if hasattr(config, "workerinput"):
        return config.workerinput["everything"]
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["everything"] = runs_everything(node.config)


def runs_default_tier(config: pytest.Config) -> bool:
    """Whether what LEFT_OUT names is left out: neither --all, -m nor the name of a test asks for it."""
    return not (config.option.all or config.option.markexpr or any("::" in argument for argument in config.args))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing torch and making 2,000 items takes 5 seconds in every process: for all tests they are not even read."""
    return True if collection_path == PEERS and runs_everything(config) and runs_default_tier(config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The whole suite runs in two processes where pytest-xdist is installed, unless -n says otherwise."""
    if runs_everything(config) and config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        if config.option.numprocesses is None and not config.option.usepdb:
            config.option.numprocesses = 2
            config.option.dist = "worksteal"  # half of the files each: a kernel is seldom compiled by both


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of the folders above once on the CPU and once on a cuda device, which is made the default one.

    A test that looks at NumPy's memory, or at what only the CPU has, says `@pytest.mark.cpu_only("why")`.
    """
    if metafunc.definition.path.parent.name in ON_EVERY_DEVICE or hasattr(metafunc.module, "ON_EVERY_DEVICE"):
        cpu_only = metafunc.definition.get_closest_marker("cpu_only")
        assert cpu_only is None or cpu_only.args, f"{metafunc.definition.name}: cpu_only has to say why"
        wanted = metafunc.config.getoption("--device")
        devices = [d for d in ("cpu", "cuda") if wanted in ("all", d) and (d == "cpu" or cpu_only is None)]
        metafunc.parametrize("device_in_use", devices, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what a folder or a parameter says: an emulated device compiles each kernel, which takes seconds."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if "cuda" in map(str, parameters.values()) or getattr(item, "originalname", "").endswith("_on_cuda"):
        item.add_marker(pytest.mark.slow)
    if item.path.parent.name == "kernels" and item.path.stem != "test_samples":
        item.add_marker(pytest.mark.slow)
    if item.path.parent.name == "hostcuda" and not item.get_closest_marker("few"):
        item.add_marker(pytest.mark.few(1))
    if item.path.parent.name == "peers":
        item.add_marker(pytest.mark.peers)
    if item.path.stem == "test_ptx" or item.name.startswith("test_ptx"):
        item.add_marker(pytest.mark.ptx)


@pytest.fixture
def checked_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels on an emulated device run in the checked executor: what takes seconds, for each, is to compile them."""
    monkeypatch.setattr(Kernel, "watched", True)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Millions of objects that live until the end: the garbage collector need not look through them time and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(5_000, 10, 20)  # a compiled loop makes some ten thousand objects
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave out what is slow or needs other packages, unless it was asked for."""
    mark_all_but_few(items)
    yield
    if SHARE > 1:
        left_out = others_than_every(SHARE, items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    if not runs_default_tier(config):
        return
    marked = [(item, next((name for name in LEFT_OUT if item.get_closest_marker(name)), None)) for item in items]
    items[:] = [item for item, name in marked if name is None]
    config.stash[COUNTS] = Counter(name for _, name in marked if name is not None)
    config.hook.pytest_deselected(items=[item for item, name in marked if name is not None])


def others_than_every(share: int, items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each test all cases but one of each `share`, or of them all where they are fewer; others in each run."""
    cases = defaultdict(list)
    for item in items:
        cases[item.path, getattr(item, "originalname", item.name)].append(item)
    return {
        item
        for group in cases.values()
        for i, item in enumerate(group)
        if (i - checks.FRESH_SEED) % min(share, len(group))
    }


def mark_all_but_few(items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked `few(count)`, mark all as slow but `count`, evenly spread."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            cases[item.path, item.originalname].append(item)
    for group in cases.values():
        count = group[0].get_closest_marker("few").args[0]
        kept = {i * len(group) // count for i in range(count)}
        for i, item in enumerate(group):
            if i not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Under xdist the workers collect, and each of them counts the same."""
    node.config.stash[COUNTS] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(COUNTS, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash.get(COUNTS, Counter())
    if counts:
        parts = ", ".join(f"{count} {name}" for name, count in counts.items())
        peers = " and those beside PyTorch" if runs_everything(config) else ""
        terminalreporter.write_line(f"left out: {counts.total()} tests ({parts}){peers}; `pytest --all` runs them too")


@pytest.fixture(autouse=True)
def device_in_use(request: pytest.FixtureRequest) -> Iterator[flow.device]:
    """The device on which factories make tensors during the test, and on which `checks` puts its inputs."""
    name = getattr(request, "param", "cpu")
    flow.set_default_device(name)
    if name == "cuda" and flow.cuda.is_emulated():
        from miniflow.backends.cuda.allocator import allocator

        allocator(0).poison = True  # memory that a kernel leaves unwritten holds NaN
    yield flow.get_default_device()
    flow.set_default_device("cpu")


def pytest_report_header() -> str:
    return f"fresh seed: {checks.FRESH_SEED} (MINIFLOW_TEST_SEED={checks.FRESH_SEED} repeats it)"


@pytest.fixture(params=["fixed", pytest.param("fresh", marks=pytest.mark.slow)])
def seed(request: pytest.FixtureRequest) -> int:
    """A randomised test runs with seed 0 and, among the slow tests, with the fresh seed that the header prints."""
    return 0 if request.param == "fixed" else checks.FRESH_SEED


def _counting(function: Any) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        checks.count_comparison()
        return function(*args, **kwargs)

    return counted


def pytest_configure(config: pytest.Config) -> None:
    """Count what is compared without `checks`: expected errors, and NumPy's assertions."""
    # processes that tests start import the package in half the time where there is bytecode
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    pytest.raises = _counting(pytest.raises)
    for name in ("assert_allclose", "assert_array_equal", "assert_equal"):
        setattr(np.testing, name, _counting(getattr(np.testing, name)))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    before = checks.comparisons_made()
    result = yield
    if checks.comparisons_made() == before and not certainly_asserts(pyfuncitem.function):
        pytest.fail(
            "no comparison was made for sure: assert outside of loops that may be empty, or use tests/checks.py",
            pytrace=False,
        )
    return result
