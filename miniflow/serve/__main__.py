"""`python -m miniflow.serve MODELS/` serves a folder of saved graphs; `python -m miniflow.serve prepare MODELS/` only
makes the model repository that Triton reads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from miniflow.errors import ArgumentError, CheckpointError, GraphError, WorkerError
from miniflow.serve.repository import is_model, models_in, prepare
from miniflow.serve.server import find_triton, run

FAILURES = (ArgumentError, CheckpointError, GraphError)


def port(text: str) -> int:
    """The number of a port; argparse says what is wrong with another text."""
    number = int(text)
    if not 0 <= number < 2**16:
        raise argparse.ArgumentTypeError(f"got {text}; expected 0 to 65535")
    return number


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; a wrong one ends the program with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m miniflow.serve [prepare]",
        description="Serve saved graphs over HTTP, by the protocol of KServe, version 2.",
        epilog="python -m miniflow.serve prepare MODELS: only write what is missing of a model repository",
        allow_abbrev=False,
    )
    parser.add_argument("models", help="a folder of models, each what flow.save(graph, folder) wrote")
    parser.add_argument(
        "--engine", choices=["triton", "python"], help="what answers requests; by default triton, if it is installed"
    )
    parser.add_argument("--http-address", default="127.0.0.1", help="0.0.0.0: reachable from other machines")
    parser.add_argument("--http-port", type=port, default=8000)
    parser.add_argument("--names", action="store_true", help="call tensors as the graph does, not INPUT_0")
    parser.add_argument("--max-batch-size", type=int, help="rows that may be joined; 0: shapes of the saved graph")
    for engine in ("openvino", "tensorrt"):
        parser.add_argument(
            f"--enable-{engine}", action="append", default=[], metavar="MODEL", help=f"run MODEL by {engine}"
        )
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    only_prepare = arguments[:1] == ["prepare"]
    return parser.parse_args(arguments[only_prepare:], argparse.Namespace(only_prepare=only_prepare))


def default_engine() -> str:
    """Triton if it can be used here, else "python"; says why."""
    try:
        find_triton()
    except ArgumentError as error:
        print(f"{error}. The engine python answers instead.", file=sys.stderr)
        return "python"
    return "triton"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the models, and serve them until Ctrl-C. Returns the exit code."""
    options = parse(arguments)
    engines = dict.fromkeys(options.enable_openvino, "openvino") | dict.fromkeys(options.enable_tensorrt, "tensorrt")
    failed = False
    try:
        prepare(options.models, names=options.names, max_batch_size=options.max_batch_size, engines=engines or None)
    except FAILURES as error:
        failed = True
        print(error, file=sys.stderr)
    models = [model for model in models_in(options.models) if is_model(model)]
    if options.only_prepare or not models:
        return int(failed)
    try:
        if (options.engine or default_engine()) == "python":
            python = import_module("miniflow.serve.application")
            return python.run(python.app(options.models), options.http_address, options.http_port)
        return run(models, options.http_address, options.http_port)
    except (*FAILURES, WorkerError) as error:
        print(error, file=sys.stderr)
    except ImportError as error:
        print(f'serve: {error.name} is not installed; expected it: pip install "miniflow-edu[serve]"', file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
