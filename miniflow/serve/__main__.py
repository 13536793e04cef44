"""`python -m miniflow.serve MODELS/` serves a folder of saved graphs; `python -m miniflow.serve prepare MODELS/` only
makes the model repository that Triton reads."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from miniflow.errors import ArgumentError, WorkerError
from miniflow.serve.protocol import BINARY_ONLY
from miniflow.serve.repository import FAILURES, models_in, prepare
from miniflow.serve.server import find_triton, get

ENGINES = {"triton": "miniflow.serve.server", "python": "miniflow.serve.application"}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; a wrong one ends the program with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m miniflow.serve [prepare]",
        description="Serve saved graphs over HTTP, by the protocol of KServe, version 2.",
        epilog="python -m miniflow.serve prepare MODELS: only write what is missing of a model repository",
        allow_abbrev=False,
    )
    parser.add_argument("models", help="a folder of models, each what flow.save(graph, folder) wrote")
    parser.add_argument("--engine", choices=ENGINES, help="what answers; by default triton, if it is installed")
    parser.add_argument("--http-address", default="127.0.0.1", help="0.0.0.0: reachable from other machines")
    parser.add_argument("--http-port", type=int, default=8000, help="0: one that is free")
    parser.add_argument("--names", action="store_true", help="call tensors as the graph does, not INPUT_0")
    parser.add_argument("--max-batch-size", type=int, help="rows that may be joined; 0: shapes of the saved graph")
    parser.add_argument("--enable-openvino", action="append", default=[], metavar="MODEL", help="run MODEL by OpenVINO")
    parser.add_argument("--enable-tensorrt", action="append", default=[], metavar="MODEL", help="run MODEL by TensorRT")
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


def free_address(host: str, port: int) -> tuple[str, int]:
    """Where a server can listen: the address of a host, and the port, or any that is free for 0."""
    try:
        with socket.create_server((host, port)) as server:
            return server.getsockname()
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"serve: got {host}:{port}; expected an address that is free: {error}") from error


def example(url: str, about: dict[str, Any]) -> str:
    """A request for a model, with one row of zeros, as a line for a shell.

    Args:
        url: of the server.
        about: the metadata of the model.
    """
    if binary := {x["datatype"] for x in (*about["inputs"], *about["outputs"])}.intersection(BINARY_ONLY):
        return f"with {' and '.join(binary)} as binary data"
    inputs = []
    for tensor in about["inputs"]:
        shape = [max(size, 1) for size in tensor["shape"]]  # -1 stands for any
        data = f"[{'False' if tensor['datatype'] == 'BOOL' else 0}] * {prod(shape)}"
        inputs.append(f'{json.dumps({**tensor, "shape": shape})[:-1]}, "data": {data}}}')
    program = f'import json; print(json.dumps({{"inputs": [{", ".join(inputs)}]}}))'
    return f"for example:\n    python -c {shlex.quote(program)} | curl -d @- {url}/v2/models/{about['name']}/infer"


def serve(models: Sequence[Path], engine: str, host: str, port: int) -> None:
    """Serve until KeyboardInterrupt, or SIGTERM; print where, and a request for each model that answers."""
    server, (host, port) = import_module(ENGINES[engine]), free_address(host, port)
    url = f"http://{host}:{port}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server.started(models, host, port) as running:
        for about in filter(None, [get(f"{url}/v2/models/{model.name}") for model in models]):
            print(f"{about['name']} answers, {example(url, about)}")
        print(f"{engine} listens on {url}; Ctrl-C ends it.", flush=True)
        running.wait()
        raise WorkerError(f"serve: {engine} has ended by itself; expected it to answer until Ctrl-C")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the models, and serve them until Ctrl-C or SIGTERM. Returns the exit code."""
    options = parse(arguments)
    engines = dict.fromkeys(options.enable_openvino, "openvino") | dict.fromkeys(options.enable_tensorrt, "tensorrt")
    try:
        models = prepare(options.models, names=options.names, max_batch_size=options.max_batch_size, engines=engines)
        if options.only_prepare:
            return int(models != models_in(options.models))
        serve(models, options.engine or default_engine(), options.http_address, options.http_port)
    except KeyboardInterrupt:
        return 0
    except (*FAILURES, WorkerError) as error:
        print(error, file=sys.stderr)
    except ImportError as error:
        print(f'serve: {error.name} is not installed; expected it: pip install "miniflow-edu[serve]"', file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
