"""For all tests of the DataLoader: none hangs, and none leaves a process behind."""

import gc
import multiprocessing
import signal

import pytest


@pytest.fixture(autouse=True)
def no_worker_is_left():
    yield
    if multiprocessing.active_children():
        gc.collect()
    assert multiprocessing.active_children() == []


@pytest.fixture(autouse=True)
def no_hang():
    """A test that would hang fails instead."""

    def give_up(*_):
        raise TimeoutError("the test hangs")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(50)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
