"""Kernels typed at Python's prompt, in a terminal."""

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from miniflow.hostcuda.cache import base_folder

pty = pytest.importorskip("pty", reason="this system has no terminals")

README = Path(__file__).parents[2] / "README.md"
TYPED = """
import numpy as np
from miniflow.hostcuda import cuda
@cuda.jit
def kernel(x):
    x[cuda.grid(1)] = 1

@cuda.jit(device=True)
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)

twice = cuda.jit(lambda a: 2 * a, device=True)
@cuda.jit
def kernel(x):
    i = cuda.grid(1)
    # twice
    x[i] = factorial(i)
    x[i] = twice(x[i])

first = kernel
@cuda.jit
def kernel(x):
    i = cuda.grid(1)
    x[i] = twice(i)
    x[i] = factorial(x[i])

def make(n):
    @cuda.jit
    def kernel(x):
        def plus(a: int):
            return a + n
        x[cuda.grid(1)] = plus(0)
    return kernel

@cuda.jit
def outside(x):
    i = cuda.grid(1)
    x[i + 1] = 1

@cuda.jit
def twice_the_same(x):
    x[0] += 1
    x[0] += 1

x = cuda.to_device(np.zeros(4))
first[1, 4](x); print(x.copy_to_host())
make(7)[1, 4](x); print(x.copy_to_host())
outside[1, 4](x)
exec("@cuda.jit\\ndef unknown(x): x[0] = 1")
unknown[1, 1](x)
twice_the_same[1, 1](x)
"""
SHELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell)
"""


def terminal(text, tmp_path, command=(), seconds=300):
    """What Python prints when the lines are typed, each after a prompt."""
    master, slave = pty.openpty()
    environment = os.environ | {"MINIFLOW_CUDA": "host", "TERM": "dumb", "HOME": str(tmp_path), "COLUMNS": "200"}
    environment["MINIFLOW_CACHE_DIR"] = str(base_folder())  # what the checks consist of is compiled there
    command = command or (sys.executable, "-q", "-i", "-c", "")
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True)
    os.close(slave)
    found, end = "", time.monotonic() + seconds
    lines = text.strip("\n").split("\n")
    try:
        while time.monotonic() < end and lines is not None:
            if select.select([master], [], [], 1)[0]:
                found += os.read(master, 4096).decode(errors="replace")
            if re.search(r"(>>>|\.\.\.) (\x1b\S*)?$", found):
                if not lines:
                    break
                found += "\n"
                os.write(master, (lines.pop(0) + "\n").encode())
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return found


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="from 3.13 on, Python keeps what is typed")
def test_what_is_typed_is_found_in_the_history(tmp_path):
    pytest.importorskip("readline", reason="this Python has no history")
    (example,) = re.findall(r"^>>> @cuda.jit\(check=True\)\n.*?^>>> reverse.*?$", README.read_text(), re.M | re.S)
    example = re.sub(r"^(>>>|\.\.\.) ?", "", example, flags=re.M)
    told = terminal(f"{TYPED}\nfrom numba import float32\n{example}\nprint('the', 'end')", tmp_path)
    results = re.findall(r"^\[.*\]", told.replace("\r", ""), re.MULTILINE)
    assert results == ["[ 2.  2.  4. 12.]", "[7. 7. 7. 7.]"], told
    assert "KernelIndexError: <stdin>:4: outside: index 4 of x[i + 1] is out of bounds" in told
    words = "its source cannot be read .*; define kernels in a file that is run or imported, in a notebook cell, or at"
    assert re.search(f"UnsupportedKernelError: unknown: {words}", told)
    assert re.search(f"UnsupportedKernelError: twice_the_same: {words}", told)  # the history has such a line once
    assert "KernelCheckError: kernel reverse: 2 findings\nrace: <stdin>:5: thread" in told.replace("\r", "")
    assert "\nthe end" in told.replace("\r", "")


def test_what_is_typed_into_ipython(tmp_path):
    pytest.importorskip("IPython", reason="IPython is not installed: pip install -e '.[notebooks]'")
    cells = [
        "import numpy as np\nfrom miniflow.hostcuda import cuda",
        "@cuda.jit\ndef kernel(x):\n    x[cuda.grid(1)] = 5\n",
        "x = cuda.to_device(np.zeros(2)); kernel[1, 2](x); print(x.copy_to_host())",
        "kernel[1, 3](x)",
    ]
    environment = os.environ | {"MINIFLOW_CUDA": "host", "IPYTHONDIR": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-c", SHELL.format(cells=cells)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.stdout.startswith("[5. 5.]\n"), ran.stderr
    told = re.sub(r"\x1b\[\d*m", "", ran.stdout)
    assert re.search("KernelIndexError: .*:3: kernel: index 2 of x.* is out of bounds", told)
