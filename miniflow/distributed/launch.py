"""`python -m miniflow.distributed.launch --nproc_per_node 4 script.py`: a script as MPI ranks.

It starts `mpiexec`, which starts the ranks; each of them is this file once more with `--rank-of`, which sets the
environment variables that scripts read and then becomes the script. If a rank fails, mpiexec ends the others. A rank
that ends well leaves a file, since mpiexec takes `os._exit(0)` for success too. `output` keeps lines whole. On several
machines it is run on each of them, with its own `--node_rank`; `nodes` says how they come together.

Source: `torch.distributed.launch` and `oneflow.distributed.launch`, whose options these are.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m miniflow.distributed.launch",
        description="Start a script as several MPI ranks.",
        epilog="Environment: MINIFLOW_TIMEOUT_SECONDS, after which a rank that waits for others in vain ends all. "
        "MINIFLOW_CHECK_RANKS=1 compares the operators and collectives of all ranks before they run. "
        "MINIFLOW_CUDA_AWARE_MPI=1 passes arrays on CUDA devices to MPI as they are.",
    )
    parser.add_argument("--nnodes", type=int, default=1, help="machines, each of which runs this; with MPICH's mpiexec")
    parser.add_argument("--node_rank", type=int, default=0, help="of this machine, from 0 on")
    parser.add_argument("--nproc_per_node", type=int, default=1, metavar="N", help="ranks of a machine")
    parser.add_argument("--master_addr", default="127.0.0.1", help="of node 0; set as MASTER_ADDR")
    parser.add_argument("--master_port", type=int, default=29500, help="set as MASTER_PORT")
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module, as in python -m")
    parser.add_argument("--no_python", action="store_true", help="the script is a program")
    parser.add_argument(
        "--redirect_stdout_and_stderr", action="store_true", help="to LOGDIR/local_rank_<i>/stdout and stderr"
    )
    parser.add_argument("--logdir", default="log", help="folder for that")
    parser.add_argument("training_script", help="what to run")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    args = parser.parse_args(arguments)
    if args.module and args.no_python:
        parser.error("got -m together with --no_python; expected one of them")
    if args.nproc_per_node < 1:
        parser.error(f"got --nproc_per_node {args.nproc_per_node}; expected at least 1")
    if not 0 <= args.master_port < 65536:
        parser.error(f"got --master_port {args.master_port}; expected less than 65536")
    if not 0 <= args.node_rank < args.nnodes:
        parser.error(f"got --node_rank {args.node_rank} of --nnodes {args.nnodes}; expected less")
    return args


def command(args: argparse.Namespace) -> list[str]:
    """What each rank runs."""
    python = [] if args.no_python else [sys.executable, *(["-m"] if args.module else [])]
    return [*python, args.training_script, *args.training_script_args]


def find_mpiexec() -> str:
    """The program that starts MPI ranks: that of the environment of this Python, or one on PATH."""
    in_environment = Path(sys.executable).with_name("mpiexec")
    program = str(in_environment) if in_environment.exists() else shutil.which("mpiexec")
    if program is None:
        sys.exit('launch: found no mpiexec; pip install "miniflow-edu[mpi]" brings one')
    return program


def main(arguments: list[str] | None = None) -> int:
    """Start the ranks, wait for them, and return the exit status."""
    args = parse(arguments)
    environment = os.environ | {
        "MASTER_ADDR": args.master_addr, "MASTER_PORT": str(args.master_port),
        "WORLD_SIZE": str(args.nnodes * args.nproc_per_node),
    }  # fmt: skip
    if args.nproc_per_node > 1:
        if "OMP_NUM_THREADS" not in environment:
            environment["OMP_NUM_THREADS"] = "1"
            print("launch: OMP_NUM_THREADS is 1 for each rank; set it to change that", file=sys.stderr)
        environment.setdefault("NUMBA_NUM_THREADS", environment["OMP_NUM_THREADS"])
    with tempfile.TemporaryDirectory() as ended:
        environment["MINIFLOW_ENDED"] = ended
        status = run_ranks(args, environment)
        missing = args.nproc_per_node - len(os.listdir(ended))
    if missing and not status and not args.no_python:
        print(
            f"launch: {missing} of {args.nproc_per_node} ranks did not end as Python ends, though none reported an "
            "error: os._exit in a rank, for one, ends all; use sys.exit",
            file=sys.stderr,
        )
        status = 1
    if status:
        print(f"launch: {' '.join(command(args))} failed with exit status {status}", file=sys.stderr)
    return abs(status)


def run_ranks(args: argparse.Namespace, environment: dict[str, str]) -> int:
    """Start the ranks of this machine, pass on what they print, and return the exit status."""
    from miniflow.distributed import nodes, output  # not above: each rank runs this file before the script

    folder = args.logdir if args.redirect_stdout_and_stderr else None
    rank = [sys.executable, "-u", __file__, "--rank-of", json.dumps([folder, args.no_python, *command(args)])]
    if args.nnodes == 1:
        process = output.start(find_mpiexec(), "-n", str(args.nproc_per_node), *rank, environment=environment)
        pass_signals_to(process)
        with output.in_lines(process):
            return process.wait()
    environment["MINIFLOW_RANK"] = f"exec {shlex.join(rank)}"
    address = args.master_addr, args.master_port
    arguments = args.nnodes, args.nproc_per_node, address, find_mpiexec(), environment
    return nodes.other(args.node_rank, *arguments) if args.node_rank else nodes.first(*arguments, pass_signals_to)


def pass_signals_to(process: subprocess.Popen) -> None:
    """Let a process have the signals that would end this one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: process.send_signal(number))


def become_rank(description: str) -> None:
    """In a rank: set what scripts read from the environment, and become the script."""
    logdir, is_program, *argv = json.loads(description)
    rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    local = os.environ.get("MPI_LOCALRANKID") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", rank)
    os.environ.update({"RANK": rank, "LOCAL_RANK": local})
    if logdir is not None:
        folder = Path(logdir) / f"local_rank_{local}"
        folder.mkdir(parents=True, exist_ok=True)
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), descriptor)
    if is_program:
        os.execvp(argv[0], argv)
    atexit.register(Path(os.environ["MINIFLOW_ENDED"], rank).touch)  # registered first, it runs last
    sys.argv, sys.path[0] = argv, os.getcwd()
    runpy.run_module("mpi4py", run_name="__main__", alter_sys=True)  # ends all ranks if one exits with another status


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        become_rank(sys.argv[2])
    else:
        sys.exit(main())
