"""The HTTP side without Triton: an ASGI application with the paths of KServe's protocol, version 2, and its server.

For laptops and lessons. It needs starlette and uvicorn: `pip install "miniflow-edu[serve]"`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from miniflow.serve.batches import Batches
from miniflow.serve.model import REFUSALS, ServedModel
from miniflow.serve.protocol import HEADER, read, write
from miniflow.serve.repository import each, prepare

TEXT_PER_BYTE = 32  # of numbers in JSON, for the largest body that is taken


def app(models: str | os.PathLike) -> Starlette:
    """An ASGI application that answers for the models of a folder; a model that cannot be loaded is named on stderr.

    Args:
        models: a folder of `flow.save(graph, folder)`, or of models that `prepare` made of such, or one model.

    Raises:
        ArgumentError: if there is no model.
        CheckpointError, DeviceError, GraphError: if none can be loaded.

    >>> import miniflow as flow, tempfile
    >>> from starlette.testclient import TestClient
    >>> graph = flow.nn.Graph.trace(flow.nn.ReLU())
    >>> _ = graph(flow.ones(2, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     graph.save(folder + "/relu", serve=True)
    ...     application = app(folder)
    >>> x = {"name": "INPUT_0", "datatype": "FP32", "shape": [1, 2], "data": [-1.5, 2.5]}
    >>> with TestClient(application) as client:
    ...     client.post("/v2/models/relu/infer", json={"inputs": [x]}).json()["outputs"][0]["data"]
    [0.0, 2.5]
    """
    return application(prepare(models))


def application(models: Sequence[Path]) -> Starlette:
    """The application for folders of models that have been prepared."""
    served = {model.name: model for model in each(ServedModel, models)}
    routes = [Route(path, server) for path in ("/v2", "/v2/health/live", "/v2/health/ready")]
    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(path, metadata), Route(f"{path}/ready", metadata)]
        routes += [Route(f"{path}/infer", infer, methods=["POST"])]
    handlers = dict.fromkeys((HTTPException, ClientDisconnect, *REFUSALS), told)
    found = Starlette(routes=routes, exception_handlers=handlers)
    found.state.models, found.state.batches = served, {name: Batches(model) for name, model in served.items()}
    return found


async def server(_: Request) -> Response:
    """Metadata of the server, which is ready."""
    return JSONResponse({"name": "miniflow", "version": version("miniflow-edu"), "extensions": ["binary_tensor_data"]})


async def metadata(request: Request) -> Response:
    """The inputs and outputs of a model, which is ready; -1 stands for the size of a batch."""
    model = model_of(request)
    inputs, outputs = (
        [{"name": name, "datatype": port.datatype, "shape": port.dims} for name, port in ports.items()]
        for ports in (model.inputs, model.outputs)
    )
    about = {"name": model.name, "versions": [str(model.version)], "platform": "miniflow"}
    return JSONResponse({**about, "inputs": inputs, "outputs": outputs})


async def infer(request: Request) -> Response:
    """The answer of a model, in a batch with others that wait."""
    model = model_of(request)
    asked, inputs = read(model.name, await body_of(request, model), request.headers.get(HEADER))
    answer = await request.app.state.batches[model.name].answer(inputs)
    content, size = write(model.name, model.version, asked, answer)
    if size is None:
        return Response(content, media_type="application/json")
    return Response(content, headers={HEADER: str(size)}, media_type="application/octet-stream")


def model_of(request: Request) -> ServedModel:
    """The model in the path of a request."""
    models, name, number = request.app.state.models, request.path_params["model"], request.path_params.get("version")
    if name not in models:
        raise HTTPException(404, f"{name:.80}: there is no such model; expected one of {sorted(models)}")
    if number not in (None, str(models[name].version)):
        raise HTTPException(404, f"{name}: got version {number:.80}; expected {models[name].version}, which is served")
    return models[name]


async def told(_: Request, error: Exception) -> Response:
    """An error as KServe wants it."""
    content = json.dumps({"error": getattr(error, "detail", str(error))})  # in ASCII: UTF-8 cannot encode each name
    return Response(content, getattr(error, "status_code", 400), getattr(error, "headers", None), "application/json")


async def body_of(request: Request, model: ServedModel) -> bytes:
    """The body of a request, of which no more is read than the numbers of a full batch need as text."""
    rows = model.most / model.saved.rows if model.most else 1
    most = int(TEXT_PER_BYTE * rows * sum(slot.nbytes for slot in model.saved.inputs)) + (1 << 18)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise HTTPException(413, f"{model.name}: the body is too large; expected at most {most} bytes")
    return bytes(body)


@contextmanager
def started(models: Sequence[Path], host: str, port: int) -> Iterator[SimpleNamespace]:
    """A server of the folders of models that is ready to answer; it has ended when the block has."""
    config = uvicorn.Config(application(models), host, port, log_level="warning", timeout_graceful_shutdown=5)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not running.started:
            time.sleep(0.01)
        yield SimpleNamespace(wait=thread.join)
    finally:
        running.should_exit = True
        thread.join()
