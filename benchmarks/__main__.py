"""`python -m benchmarks`: every table, in one run."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import (
    gpu,
    graph,
    harness,
    hostcuda,
    layers,
    loader,
    models,
    onnx,
    ops,
    parallel,
    passes,
    rewrites,
    serve,
    sparse,
    startup,
    training,
)
from benchmarks.gpu_cases import FAMILIES

TABLES = (
    *("ops", "layers", "training", "graph", "passes", "sparse", "startup", "parallel", "hostcuda", "rewrites"),
    *("models", "onnx", "loader", "serve", "gpu"),
)
BESIDE_TORCH = ("ops", "layers", "training", "graph", "sparse", "startup", "models", "loader", "serve")
ON_DEMAND = ("models", "onnx", "loader", "serve", "gpu")


def main(arguments: list[str] | None = None) -> int:
    """Print the tables that were asked for."""
    parser = command()
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.tables) - set(TABLES))
    if unknown:
        parser.error(f"there is no table {', '.join(unknown)}; expected some of {', '.join(TABLES)}")
    options.tables = options.tables or [name for name in TABLES if name not in ON_DEMAND]
    if not set(options.tables).isdisjoint(BESIDE_TORCH) and importlib.util.find_spec("torch") is None:
        parser.error("there is nothing to compare with: pip install torch==2.13.0")
    refusal = gpu.refusal() if "gpu" in options.tables and not options.dry_run else ""
    if refusal:
        print(refusal, file=sys.stderr)
        return 2
    printed = ""
    for text in tables(options):
        print(text, flush=True)
        printed += text + "\n"
        if options.output:
            options.output.write_text(printed)
    return 0


def command() -> argparse.ArgumentParser:
    """What the command line may say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast miniflow is, on this machine.")
    names = f"some of {', '.join(TABLES)}; by default all but {', '.join(ON_DEMAND)}"
    parser.add_argument("tables", nargs="*", metavar="table", help=names)
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=[1, 2],
        metavar="N",
        help="not for ops, passes, startup, rewrites, loader, gpu",
    )
    needs = "training, models: torch.compile too; needs a C++ compiler"
    parser.add_argument("--compile", action="store_true", help=needs)
    parser.add_argument("--models", nargs="+", default=models.MODELS, metavar="LIBRARY/NAME", help="for models: these")
    parser.add_argument("--families", nargs="+", default=[], choices=FAMILIES, help="for gpu: only these")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the tables to a file too")
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)  # gpu without one, for the tests
    return parser


def tables(options: argparse.Namespace) -> Iterator[str]:
    """The machine, and table after table."""
    yield harness.machine()
    peers = ["torch", "torch.compile"] if options.compile else ["torch"]
    if "ops" in options.tables:
        yield ops.report()
    if "layers" in options.tables:
        for threads in options.threads:
            yield layers.report(threads)
    if "training" in options.tables:
        for threads in options.threads:
            yield training.report(threads, peers)
    if "graph" in options.tables:
        yield from graph.reports(options.threads)
    if "passes" in options.tables:
        yield passes.report()
    if "sparse" in options.tables:
        for threads in options.threads:
            yield sparse.report(threads)
    if "startup" in options.tables:
        yield startup.report()
    if "parallel" in options.tables:
        yield from parallel.reports()
    if "hostcuda" in options.tables:
        yield from hostcuda.reports(options.threads)
    if "rewrites" in options.tables:
        yield rewrites.report()
    if "models" in options.tables:
        for threads in options.threads:
            yield models.report(threads, peers, options.models)
    if "onnx" in options.tables:
        for threads in options.threads:
            yield onnx.report(threads)
    if "loader" in options.tables:
        yield loader.report()
    if "serve" in options.tables:
        for threads in options.threads:
            yield serve.report(threads)
    if "gpu" in options.tables:
        yield from gpu.reports(options.families, options.dry_run)


if __name__ == "__main__":
    sys.exit(main())
