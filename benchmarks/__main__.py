"""`python -m benchmarks`: every table, in one run."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import gpu, gpu_cases, harness, hostcuda, ops, startup, training

TABLES = ("ops", "training", "startup", "hostcuda", "gpu")
BESIDE_TORCH = ("ops", "training", "startup")


def main(arguments: list[str] | None = None) -> int:
    """Print the tables that were asked for."""
    parser = arguments_of_the_command()
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.tables) - set(TABLES))
    if unknown:
        parser.error(f"there is no table {', '.join(unknown)}; expected some of {', '.join(TABLES)}")
    wanted = options.tables or [table for table in TABLES if table != "gpu"]
    if not set(wanted).isdisjoint(BESIDE_TORCH) and importlib.util.find_spec("torch") is None:
        parser.error("there is nothing to compare with: pip install torch==2.13.0")
    refused = "gpu" in wanted and not options.dry_run and gpu.refusal()
    if refused:
        print(refused, file=sys.stderr)
        return 2
    with open(options.output, "w") if options.output else open(Path("/dev/null"), "w") as copy:
        for text in tables(wanted, options):
            print(text, flush=True)
            print(text, flush=True, file=copy)
    return 0


def arguments_of_the_command() -> argparse.ArgumentParser:
    """What the command line may say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast miniflow is, on this machine.")
    names = ", ".join(TABLES)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"some of {names}; by default all but gpu")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="for training and hostcuda")
    parser.add_argument("--compile", action="store_true", help="time torch.compile too; needs a C++ compiler")
    parser.add_argument("--families", nargs="+", default=[], choices=list(gpu_cases.FAMILIES), help="for gpu: only these")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the tables there too")
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)  # gpu without one, for the tests
    return parser
