"""`python -m miniflow.hostcuda script.py [arguments]`, or `-m module [arguments]`: a program that imports `numba.cuda`
or `numba_cuda_mlir.cuda` runs on the host executor where no GPU is usable; see `drop_in`."""

from __future__ import annotations

import os
import runpy
import sys

from miniflow.hostcuda.drop_in import install

USAGE = "python -m miniflow.hostcuda script.py [arguments]\n       python -m miniflow.hostcuda -m module [arguments]"


def main() -> None:
    """Run the program that the command line names, as Python itself would."""
    is_module, arguments = sys.argv[1:2] == ["-m"], sys.argv[1:]
    program = arguments[is_module : is_module + 1]
    if not program or program[0].startswith("-"):
        sys.exit(f"usage: {USAGE}")
    install()
    sys.argv = arguments[is_module:]
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
