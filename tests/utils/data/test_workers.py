"""Worker processes: their failures arrive, and none of them outlives its use."""

import gc
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import WorkerError
from miniflow.utils.data import DataLoader, Dataset, workers

SLOW = 60  # seconds: longer than any test may take


class Numbers(Dataset):
    """Does `act(index)` for the indices in `at`, and returns the index and the worker's process id."""

    def __init__(self, size, act=None, at=()):
        self.size, self.act, self.at = size, act, at

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index in self.at:
            self.act(index)
        return index, os.getpid()


def alive(pid):
    """Whether a process exists, other than as a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def pids(loader):
    return {pid for _, batch in loader for pid in batch.tolist()}


def test_workers_are_other_processes_and_end_with_the_epoch():
    seen = pids(DataLoader(Numbers(8), num_workers=2))
    assert len(seen) == 2 and os.getpid() not in seen
    assert not any(alive(pid) for pid in seen)


def broken_off():
    for _, pid in DataLoader(Numbers(1000), num_workers=2):
        pid = pid.item()
        break
    return pid, True


def dropped():
    batches = iter(DataLoader(Numbers(1000), num_workers=2))
    _, pid = next(batches)
    return pid.item(), alive(pid.item())


def persistent():
    loader = DataLoader(Numbers(1000), num_workers=2, persistent_workers=True)
    for _, pid in loader:
        pid = pid.item()
        break
    return pid, alive(pid)


@pytest.mark.parametrize("use", [broken_off, dropped, persistent])
def test_workers_end_when_their_epoch_is_dropped(use):
    # the loaders live in functions of their own: pytest keeps what is local to a test
    pid, was_alive = use()
    gc.collect()
    assert was_alive and not alive(pid) and multiprocessing.active_children() == []


def test_an_exception_in_the_loop_ends_the_workers():
    with pytest.raises(ZeroDivisionError):
        for _ in DataLoader(Numbers(1000), num_workers=2):
            1 / 0  # noqa: B018


def test_workers_that_are_busy_are_ended_all_the_same():
    loader = DataLoader(Numbers(100, lambda index: time.sleep(SLOW), at=range(4, 100)), num_workers=2)
    begin = time.monotonic()
    for _ in loader:
        break
    assert time.monotonic() - begin < 5


def raiser(error):
    def act(index):
        raise error

    return act


class TwoArguments(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


class Unlike(Exception):
    def __init__(self, a, b=None):
        super().__init__(a, b, 3)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bad sample"), ValueError),
        (KeyError("bad sample"), KeyError),
        (FileNotFoundError(2, "bad sample"), FileNotFoundError),
        (flow.errors.ShapeError("bad sample"), flow.errors.ShapeError),
        (TwoArguments("bad sample", 1), TwoArguments),
        (Unlike("bad sample"), WorkerError),
        (type("Local", (Exception,), {})("bad sample"), WorkerError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_arrives_with_its_class_and_traceback(error, kind, persistent):
    loader = DataLoader(Numbers(20, raiser(error), at=[5]), num_workers=2, persistent_workers=persistent)
    seen = []
    with pytest.raises(kind) as caught:
        for index, _ in loader:
            seen.append(index.item())
    assert seen == [0, 1, 2, 3, 4] and type(caught.value) is kind
    message = str(caught.value if kind is WorkerError else caught.value.__cause__)
    assert "DataLoader worker 1 (pid " in message and type(error).__name__ in message
    for words in (
        "Traceback (most recent call last)",
        "in __getitem__",
        "self.act(index)",
        "test_workers.py",
        "bad sample",
    ):
        assert words in message


def test_a_stop_iteration_in_a_worker_does_not_end_the_epoch_silently():
    for num_workers in (0, 1):
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(DataLoader(Numbers(5, raiser(StopIteration()), at=[2]), num_workers=num_workers))


def test_failures_before_the_first_batch():
    class NoStart(flow.utils.data.IterableDataset):
        def __iter__(self):
            raise OSError("cannot open the stream")

    with pytest.raises(OSError, match="cannot open the stream"):
        list(DataLoader(NoStart(), num_workers=1))
    with pytest.raises(ValueError, match="bad start"):
        list(DataLoader(Numbers(3), num_workers=1, worker_init_fn=raiser(ValueError("bad start"))))
    with pytest.raises(flow.errors.DTypeError, match="samples of type NoneType"):
        list(DataLoader([None], num_workers=1))


def test_a_batch_that_cannot_travel():
    with pytest.raises(TypeError, match="cannot pickle '_thread.lock' object"):
        list(DataLoader([1], num_workers=1, collate_fn=lambda samples: threading.Lock()))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda index: os.kill(os.getpid(), signal.SIGKILL), "exit code -9; killed by SIGKILL: out of memory"),
        (lambda index: os.kill(os.getpid(), signal.SIGTERM), "exit code -15; killed by SIGTERM.*forkserver"),
        (lambda index: os.kill(os.getpid(), signal.SIGUSR1), "exit code -10.*num_workers=0"),
        (lambda index: os._exit(3), "exit code 3.*num_workers=0"),
        (lambda index: sys.exit(4), "exit code 4"),
    ],
    ids=["SIGKILL", "SIGTERM", "SIGUSR1", "_exit", "sys.exit"],
)
def test_a_worker_that_dies_is_an_error(act, words, persistent):
    loader = DataLoader(Numbers(20, act, at=[7]), num_workers=3, persistent_workers=persistent)
    with pytest.raises(WorkerError, match=rf"DataLoader worker 1 \(pid \d+\) ended unexpectedly with {words}"):
        list(loader)
    assert multiprocessing.active_children() == []


def test_a_worker_killed_from_outside_while_it_is_awaited():
    batches = iter(DataLoader(Numbers(9, lambda index: time.sleep(SLOW), at=[1]), num_workers=1))
    _, pid = next(batches)
    threading.Timer(0.2, os.kill, (pid.item(), signal.SIGKILL)).start()
    begin = time.monotonic()
    with pytest.raises(WorkerError, match=rf"\(pid {pid.item()}\) .*killed by SIGKILL"):
        next(batches)
    assert time.monotonic() - begin < 5


def test_large_arrays_travel_in_files_that_are_closed():
    class Large(Numbers):
        def __getitem__(self, index):
            array = np.arange(300_000, dtype=np.int32).reshape(500, 600) + index
            return flow.from_numpy(array), array.T, np.float32(0.5)

    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    for i, (tensor, transposed, small) in enumerate(DataLoader(Large(4), num_workers=2, batch_size=None)):
        expected = np.arange(300_000, dtype=np.int32).reshape(500, 600) + i
        np.testing.assert_array_equal(tensor.numpy(), expected, strict=True)
        np.testing.assert_array_equal(transposed.numpy(), expected.T, strict=True)
        assert tensor.add_(1)[0, 0] == i + 1 and small == 0.5
    assert i == 3 and (opened is None or len(os.listdir("/proc/self/fd")) <= opened)


def test_a_worker_killed_while_it_sends(monkeypatch):
    """The parent has read half of a batch; the rest will never come."""
    monkeypatch.setattr(workers, "LARGE", math.inf)  # all of it through the connection

    def kill_soon(index):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()

    class Large(Numbers):
        def __getitem__(self, index):
            super().__getitem__(index)
            return np.zeros(50_000_000, np.uint8)

    loader = DataLoader(Large(4, kill_soon, at=[1]), num_workers=1)
    with pytest.raises(WorkerError, match="killed by SIGKILL"):
        for _ in loader:
            time.sleep(0.5)


def test_a_persistent_worker_killed_between_epochs():
    loader = DataLoader(Numbers(4), num_workers=2, persistent_workers=True)
    first = pids(loader)
    os.kill(min(first), signal.SIGKILL)
    assert wait_until(lambda: not alive(min(first)))
    with pytest.raises(WorkerError, match="killed by SIGKILL"):
        list(loader)
    assert len(pids(loader)) == 2  # the next epoch has new workers


def test_timeout():
    loader = DataLoader(Numbers(5, lambda index: time.sleep(SLOW), at=[2]), num_workers=1, timeout=0.3)
    begin = time.monotonic()
    with pytest.raises(WorkerError, match=r"DataLoader worker 0 \(pid \d+\) sent no batch within timeout=0.3 seconds"):
        list(loader)
    assert 0.3 <= time.monotonic() - begin < 5
    slow_but_in_time = DataLoader(Numbers(4, lambda index: time.sleep(0.1), at=range(4)), num_workers=1, timeout=5)
    assert len(list(slow_but_in_time)) == 4


def test_workers_prefetch():
    """While the first batch is in use, two more for each worker are being made."""
    counter = multiprocessing.get_context("fork").Value("i", 0)

    def count(index):
        with counter.get_lock():
            counter.value += 1

    batches = iter(DataLoader(Numbers(100, count, at=range(100)), num_workers=2, prefetch_factor=3))
    next(batches)
    assert wait_until(lambda: counter.value == 7)
    time.sleep(0.1)
    assert counter.value == 7


def test_persistent_workers_stay():
    loader = DataLoader(Numbers(20), num_workers=2, persistent_workers=True)
    first = pids(loader)
    assert len(first) == 2 and all(alive(pid) for pid in first) and pids(loader) == first
    for index, _ in loader:
        if index.item() == 3:
            break  # answers that are on their way must not reach the next epoch
    assert [index.item() for index, _ in loader] == list(range(20)) and pids(loader) == first


def test_two_epochs_at_once():
    for persistent in (False, True):
        loader = DataLoader(Numbers(6), num_workers=2, persistent_workers=persistent)
        pairs = [(a.item(), b.item()) for (a, _), (b, _) in zip(loader, loader, strict=True)]
        assert pairs == [(i, i) for i in range(6)]
    assert len(multiprocessing.active_children()) == 4  # two workers for each of the two epochs


def test_a_parallel_kernel_of_the_parent_does_not_break_forked_workers():
    big = flow.arange(1 << 19).reshape(512, -1) / 1000.0
    expected = flow.softmax(big, 1)[:, -1].sum().item()  # the parent's OpenMP threads run now

    class Heavy(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return flow.softmax(big, 1)[:, -1].sum().item()

    for batch in DataLoader(Heavy(), num_workers=2):
        np.testing.assert_allclose(batch.item(), expected, rtol=1e-5)
    np.testing.assert_allclose(flow.softmax(big, 1)[:, -1].sum().item(), expected, rtol=1e-5)


# scripts in a process of their own

SCRIPT = """
import os, sys, time
import numpy as np
import miniflow as flow
from miniflow.utils.data import DataLoader, Dataset, TensorDataset

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        if index >= 4:
            time.sleep(60)
        return os.getpid()

def main():
"""


def start(tmp_path, body):
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT + "".join(f"    {line}\n" for line in body.splitlines()) + 'if __name__ == "__main__": main()\n'
    )
    return subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background inherits "ignore"
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


WAIT_FOR_EVER = """
pids = set()
for batch in DataLoader(Slow(), num_workers=2):
    pids.add(batch.item())
    if len(pids) == 2:
        print(*pids, flush=True)
"""


def test_ctrl_c_ends_everything_with_one_traceback(tmp_path):
    process = start(tmp_path, WAIT_FOR_EVER)
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2 and all(alive(pid) for pid in workers)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to parent and workers alike
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    assert not any(alive(pid) for pid in workers)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_when_the_parent_is_killed(tmp_path, how):
    body = """
loader = DataLoader(np.arange(1000), num_workers=3, persistent_workers=True, collate_fn=lambda batch: os.getpid())
pids = list(loader)
print(*sorted(set(pids)), flush=True)
time.sleep(60)
"""
    process = start(tmp_path, body)
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 3 and all(alive(pid) for pid in workers)
    process.send_signal(how)
    process.communicate(timeout=20)
    assert wait_until(lambda: not any(alive(pid) for pid in workers))


def test_leaving_the_interpreter_with_persistent_workers(tmp_path):
    body = """
loader = DataLoader(np.arange(100), num_workers=2, persistent_workers=True, collate_fn=lambda batch: os.getpid())
print(*set(loader), flush=True)
"""
    process = start(tmp_path, body)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0 and errors == ""
    assert len(output.split()) == 2 and not any(alive(int(pid)) for pid in output.split())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(tmp_path, method):
    body = f"""
x = np.arange(20, dtype=np.float32).reshape(10, 2)
dataset = TensorDataset(flow.from_numpy(x), flow.arange(10))
loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="{method}")
batches = list(loader)
assert np.array_equal(np.concatenate([a.numpy() for a, b in batches]), x)
print([b.tolist() for a, b in batches])
try:
    list(DataLoader([1], num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="{method}"))
except flow.errors.WorkerError as error:
    print(error)
"""
    process = start(tmp_path, body)
    output, errors = process.communicate(timeout=40)
    assert process.returncode == 0, errors
    assert output.splitlines()[0] == "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]"
    assert "the data set cannot travel between processes" in output.splitlines()[1]
