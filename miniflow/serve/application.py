"""The HTTP side without Triton: an ASGI application with the paths of KServe's protocol, version 2, and its server.

For laptops and lessons. It needs starlette and uvicorn: `pip install "miniflow-edu[serve]"`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from miniflow.errors import ArgumentError, CheckpointError, DeviceError, GraphError
from miniflow.serve.batches import Batches
from miniflow.serve.config import datatype_of
from miniflow.serve.example import example
from miniflow.serve.model import REFUSALS, ServedModel
from miniflow.serve.protocol import HEADER, read, write
from miniflow.serve.repository import models_in, prepare_model

FAILURES = (ArgumentError, CheckpointError, DeviceError, GraphError)
TEXT_PER_BYTE = 32  # of numbers in JSON, for the largest body that is taken


def app(models: str | os.PathLike) -> Starlette:
    """An ASGI application that answers for the models of a folder; a model that cannot be loaded is named on stderr.

    Args:
        models: a folder of `flow.save(graph, folder)`, or of models that `prepare` made of such, or one model.

    Raises:
        ArgumentError: if there is no model.

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
    served: dict[str, ServedModel] = {}
    for folder in models_in(models):
        try:
            prepare_model(folder)
            served[folder.name] = ServedModel(folder)
        except FAILURES as error:
            print(f"serve: {folder.name} cannot be loaded: {error}", file=sys.stderr)
    if not served:
        raise ArgumentError(f"serve: got {models}; expected a folder of models that flow.save(graph, folder) wrote")
    paths = Paths(served)
    routes = [Route("/v2", paths.server), Route("/v2/health/live", paths.alive), Route("/v2/health/ready", paths.alive)]
    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(path, paths.metadata), Route(f"{path}/ready", paths.ready)]
        routes += [Route(f"{path}/infer", paths.infer, methods=["POST"])]
    application = Starlette(routes=routes, lifespan=paths.working, exception_handlers={HTTPException: told})
    application.state.models = served
    return application


class Paths:
    """What is done for each path."""

    def __init__(self, models: dict[str, ServedModel]):
        self.models = models
        self.queues: dict[str, Batches] = {}

    @asynccontextmanager
    async def working(self, _: Starlette) -> AsyncIterator[None]:
        """Compute batches while the application runs."""
        self.queues = {name: Batches(model) for name, model in self.models.items()}
        try:
            yield
        finally:
            for queue in self.queues.values():
                queue.close()

    async def server(self, _: Request) -> Response:
        """Metadata of the server."""
        return JSONResponse(
            {"name": "miniflow", "version": version("miniflow-edu"), "extensions": ["binary_tensor_data"]}
        )

    async def alive(self, _: Request) -> Response:
        """200."""
        return Response()

    async def ready(self, request: Request) -> Response:
        """200 if there is such a model."""
        self._model(request)
        return Response()

    async def metadata(self, request: Request) -> Response:
        """The inputs and outputs of a model; -1 stands for the size of a batch."""
        model = self._model(request)
        rows = [-1] if model.config.max_batch_size else []
        inputs, outputs = (
            [{"name": x.name, "datatype": datatype_of(x), "shape": [*rows, *x.dims]} for x in tensors]
            for tensors in (model.config.input, model.config.output)
        )
        about = {"name": model.name, "versions": [str(model.version)], "platform": "miniflow"}
        return JSONResponse({**about, "inputs": inputs, "outputs": outputs})

    async def infer(self, request: Request) -> Response:
        """The answer of a model, in a batch with others that wait."""
        model = self._model(request)
        body = await body_of(request, largest_body(model))
        try:
            wanted = read(body, request.headers.get(HEADER))
            answer = await asyncio.wrap_future(self.queues[model.name].answer(wanted.inputs))
            content, size = write(wanted, answer, model.name, model.version)
        except REFUSALS as error:
            raise HTTPException(400, str(error)) from error
        headers = {} if size is None else {HEADER: str(size)}
        return Response(content, 200, headers, "application/json" if size is None else "application/octet-stream")

    def _model(self, request: Request) -> ServedModel:
        name, number = request.path_params["model"], request.path_params.get("version")
        if name not in self.models or number not in (None, str(self.models[name].version)):
            asked = name if number is None else f"{name}, version {number}"
            raise HTTPException(404, f"serve: there is no model {asked:.80}; expected one of {sorted(self.models)}")
        return self.models[name]


async def told(_: Request, error: HTTPException) -> Response:
    """An error as KServe wants it."""
    content = json.dumps({"error": error.detail})  # in ASCII: the message may have a name that UTF-8 cannot encode
    return Response(content, error.status_code, error.headers, "application/json")


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request, of which no more is read than `most` bytes."""
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise HTTPException(413, f"serve: the body is too large; expected at most {most} bytes")
            pieces.append(piece)
    except (ClientDisconnect, asyncio.CancelledError) as error:  # by the client, or by the server that ends
        raise HTTPException(400, "serve: the request was cut off") from error
    return b"".join(pieces)


def largest_body(model: ServedModel) -> int:
    """How many bytes the body of a request may have: enough for the numbers of a full batch as text."""
    rows = model.config.max_batch_size / model.saved.rows if model.config.max_batch_size else 1
    return int(TEXT_PER_BYTE * rows * sum(slot.nbytes for slot in model.saved.slots)) + (1 << 18)


def run(application: Starlette, host: str = "127.0.0.1", port: int = 8000) -> int:
    """Serve until Ctrl-C or SIGTERM; print where, and a request for each model. Returns the exit code.

    Args:
        application: made by `app`.

    Raises:
        ArgumentError: if the address cannot be used.
    """
    try:
        listening = socket.create_server((host, port))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else bodies wait for ACKs of the headers
    except OSError as error:
        raise ArgumentError(f"serve: got {host}:{port}; expected an address that is free: {error.strerror}") from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with listening:
        url = f"http://{host}:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=5))
        try:
            asyncio.run(announced(server, listening, url, application.state.models))
        except KeyboardInterrupt:  # uvicorn has ended, and raises the signal again
            pass
    return 0


async def announced(server: uvicorn.Server, listening: socket.socket, url: str, models: dict[str, ServedModel]) -> None:
    """Run a server, and print that it is ready."""
    running = asyncio.create_task(server.serve([listening]))
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    for model in models.values():
        print(f"{model.name} answers, for example:\n    {example(url, model.folder)}")
    print(f"miniflow listens on {url}; Ctrl-C ends it.", flush=True)
    await running
