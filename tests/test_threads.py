"""Work shared among threads: errors arrive, and nobody goes on while another thread still computes."""

import os
import signal
import subprocess
import sys
import threading
import time

import numba
import pytest
from compare import count_comparison

from miniflow.backends.cpu.threads import SHARED_FROM, share


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(numba, "get_num_threads", lambda: 2)


def test_an_error_in_another_thread_arrives():
    def work(start, stop):
        if start:
            raise ValueError(f"in {start} to {stop}")

    with pytest.raises(ValueError, match="in 3 to 6"):
        share(work, 6, SHARED_FROM)
    count_comparison()


@pytest.mark.skipif(os.name != "posix", reason="a signal cannot be sent to one thread here")
def test_ctrl_c_waits_for_the_other_threads(monkeypatch):
    """They would go on to write into arrays that are gone."""
    finished = []

    def work(start, stop):
        if start:
            for _ in range(3):
                time.sleep(0.1)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.1)
            finished.append(stop)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits "ignore"
    try:
        with pytest.raises(KeyboardInterrupt):
            share(work, 2, SHARED_FROM)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert finished == [2]


@pytest.mark.parametrize("setting, policy", [("1", "passive"), ("0", "None")])
def test_what_an_import_sets_for_the_process_can_be_left_out(setting, policy):
    code = "import miniflow, os; print(os.environ.get('OMP_WAIT_POLICY'))"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment["MINIFLOW_RUNTIME_DEFAULTS"] = setting
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == policy
    count_comparison()
