"""Whatever saves, saves whole or not at all: on a full disk it says so, and what killed processes left goes."""

import os
import platform
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

import miniflow as flow
from miniflow.errors import CheckpointError, FileWriteError

resource = pytest.importorskip("resource", reason="this system has no limits of files")
MODEL = flow.nn.Linear(100, 100).eval()


def save_graph(folder, n):
    graph = flow.nn.Graph.trace(MODEL)
    graph(flow.ones(n, 100))
    flow.save(graph, folder / "x")


SAVES = {
    "save": lambda folder, n: flow.save({"w": flow.full((100, 100), n)}, folder / "x"),
    "graph": save_graph,
    "checkpoint": lambda folder, n: flow.distributed.checkpoint.save({"w": flow.full((100, 100), n)}, folder / "x"),
    "onnx": lambda folder, n: flow.onnx.export(MODEL, flow.ones(n, 100), folder / "x"),
    "onnx, data": lambda folder, n: flow.onnx.export(MODEL, flow.ones(n, 100), folder / "x", external_data=True),
    "to_python": lambda folder, n: flow.onnx.to_python(flow.onnx.export(MODEL, flow.ones(n, 100)), folder / "x.py"),
}


@contextmanager
def files_of_at_most(size):
    """To write more is an error of the system, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_what_is_no_regular_file_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for wrong in (path, tmp_path):
        with pytest.raises(FileWriteError, match=f"save: cannot write {wrong}: .* is no regular file"):
            flow.save({"a": 1}, wrong)
    assert path.is_fifo() and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", SAVES)
def test_a_full_disk(kind, tmp_path):
    error = f"cannot write {tmp_path / 'x'}.*too large.*expected room, and a folder that exists and may be written to"
    with files_of_at_most(20_000), pytest.raises(FileWriteError, match=error) as caught:
        SAVES[kind](tmp_path, 1)
    assert isinstance(caught.value, OSError) and isinstance(caught.value, CheckpointError)
    assert contents(tmp_path) == {}
    SAVES[kind](tmp_path, 2)
    before = contents(tmp_path)
    with files_of_at_most(20_000), pytest.raises(FileWriteError):
        SAVES[kind](tmp_path, 3)
    assert contents(tmp_path) == before


def test_a_file_in_a_folder_that_is_missing(tmp_path):
    with pytest.raises(FileWriteError, match=f"save: cannot write {tmp_path}/missing/x: .*expected room, and a folder"):
        SAVES["save"](tmp_path / "missing", 1)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("kind", ["graph", "checkpoint"])
def test_folders_are_made_with_their_parents(kind, tmp_path):
    SAVES[kind](tmp_path / "some" / "models", 1)
    assert [path.suffix for path in (tmp_path / "some" / "models" / "x").glob("*.safetensors")] == [".safetensors"]


def test_parents_that_were_made_for_a_graph_go_if_it_cannot_be_written(tmp_path):
    (tmp_path / "mine").mkdir()
    error = f"^save: cannot write {tmp_path}/mine/some/models/x/graph.safetensors: .*too large"
    with files_of_at_most(20_000), pytest.raises(FileWriteError, match=error):
        SAVES["graph"](tmp_path / "mine" / "some" / "models", 1)
    assert contents(tmp_path) == {(tmp_path / "mine").relative_to(tmp_path): False}


def test_folders_where_a_file_is(tmp_path):
    (tmp_path / "file").write_text("mine")
    for kind in ("graph", "checkpoint"):
        with pytest.raises(FileWriteError, match=f"^save: cannot write {tmp_path}/file/x: .*Not a directory"):
            SAVES[kind](tmp_path / "file", 1)
    assert list(contents(tmp_path).values()) == [b"mine"]


def test_a_state_that_cannot_be_saved_leaves_no_draft(tmp_path):
    with pytest.raises(CheckpointError, match="x is a set"):
        flow.distributed.checkpoint.save({"x": {1}}, tmp_path / "x")
    assert contents(tmp_path) == {}


KILLED = """
import os, signal, sys
import miniflow as flow
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
x = {"w": flow.ones(100, 100)}
flow.save(x, sys.argv[2] + "/x") if sys.argv[1] == "save" else flow.distributed.checkpoint.save(x, sys.argv[2] + "/y")
"""


@pytest.mark.parametrize("kind", ["save", "checkpoint"])
@pytest.mark.skipif(os.name != "posix", reason="only there can one tell whether a process is dead")
def test_what_killed_saves_left_goes_at_the_next_one_beside_it(kind, tmp_path):
    for each in ("save", "checkpoint"):
        (tmp_path / each).mkdir()
        ran = subprocess.run([sys.executable, "-c", KILLED, each, str(tmp_path / each)], timeout=300)
        assert ran.returncode == -signal.SIGKILL
        (draft,) = (tmp_path / each).iterdir()
        assert draft.suffix == ".tmp" and draft.is_dir() == (each == "checkpoint")
        draft.rename(tmp_path / draft.name)
        (tmp_path / each).rmdir()
    node, parent = platform.node(), os.getppid()
    kept = {f".x.{node}-{parent}-0.tmp", f".x.{node}x-4194305-0.tmp", ".x.4194305-0.tmp", "x.tmp", ".z"}
    for name in kept:
        (tmp_path / name).touch()
    SAVES[kind](tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == kept | {"x"}
