"""`python -m benchmarks`: every table, in one run."""

from __future__ import annotations

import argparse
import importlib.util
import sys

from benchmarks import harness, ops, startup, training

TABLES = ("ops", "training", "startup")


def main() -> int:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Miniflow beside torch, on this machine.")
    parser.add_argument("tables", nargs="*", metavar="table", help=f"some of {', '.join(TABLES)}; by default all")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="for the training steps")
    parser.add_argument("--compile", action="store_true", help="time torch.compile too; needs a C++ compiler")
    options = parser.parse_args()
    unknown = sorted(set(options.tables) - set(TABLES))
    if unknown:
        parser.error(f"there is no table {', '.join(unknown)}; expected some of {', '.join(TABLES)}")
    if importlib.util.find_spec("torch") is None:
        parser.error("there is nothing to compare with: pip install torch==2.13.0")
    wanted = options.tables or TABLES
    peers = ["torch", "torch.compile"] if options.compile else ["torch"]
    print(harness.machine(), flush=True)
    if "ops" in wanted:
        print(ops.report(), flush=True)
    if "training" in wanted:
        for threads in options.threads:
            print(training.report(threads, peers), flush=True)
    if "startup" in wanted:
        print(startup.report(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
