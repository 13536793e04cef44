"""Serve saved graphs: `graph.save(path, serve=True)`, or `prepare(folder)`, then `python -m miniflow.serve folder`.

The folder is a model repository of NVIDIA Triton in OneFlow's layout. `repository` writes it, `config` reads and writes
the `config.pbtxt` of a model, `saved` runs a graph for batches of any size, and `model` answers requests with it.
Without Triton `application` answers over HTTP: `protocol` has the form of requests, `batches` joins those that wait.
"""

from importlib import import_module
from typing import Any

from miniflow.serve.config import read_config, write_config
from miniflow.serve.model import REFUSALS, ServedModel
from miniflow.serve.repository import prepare

__all__ = ["REFUSALS", "ServedModel", "app", "prepare", "read_config", "write_config"]


def __getattr__(name: str) -> Any:
    """`app`, which needs starlette and uvicorn, is imported when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("miniflow.serve.application").app
