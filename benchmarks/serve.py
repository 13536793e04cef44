"""Requests of clients that each wait for the answer before they ask again: a saved graph behind HTTP, beside torch.

All servers are processes of their own; clients are connections that are kept, in one process. A request has one image
as binary data. `batches` is the python engine with batching, `one by one` without it; `torch` is a module of torch in
the same application, with batching; `triton` is NVIDIA Triton, where it is installed, with batching.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import networks
from benchmarks.harness import POOLS, ROOT, ROUNDS, table

NETWORKS = {"resnet18": (networks.resnet18, (3, 32, 32)), "lenet": (networks.lenet, (1, 28, 28))}
CLIENTS, SECONDS, ROWS = (1, 8, 64), 4.0, 8
TRITON = ("triton",) if shutil.which("tritonserver") or find_spec("pytriton") else ()
SERVERS = ("batches", "one by one", "torch", *TRITON)
HEADER = "Inference-Header-Content-Length"


# servers


def save(folder: Path, network: str) -> None:
    """Save a network as a model for each server, and its weights."""
    import miniflow as flow

    make, shape = NETWORKS[network]
    flow.manual_seed(0)
    model = make(flow.nn).eval()
    graph = flow.nn.Graph.trace(model)
    graph(flow.zeros(ROWS, *shape))
    for server in SERVERS:
        graph.save(folder / server / network, serve=True)
    config = folder / "one by one" / network / "config.pbtxt"
    config.write_text(config.read_text().partition("dynamic_batching")[0])
    flow.save(model.state_dict(), folder / "weights.safetensors")


class TorchModel:
    """torch's module in the place of a saved graph."""

    def __init__(self, network: str, weights: Path, saved: Any):
        import torch
        from safetensors.torch import load_file

        self.torch, self.saved, self.module = torch, saved, NETWORKS[network][0](torch.nn).eval()
        torch.set_num_threads(int(os.environ[POOLS[0]]))
        self.module.load_state_dict(load_file(weights))

    def __call__(self, tensors: list[Any]) -> list[Any]:
        import miniflow as flow

        with self.torch.inference_mode():
            return [flow.from_numpy(self.module(*[self.torch.from_numpy(x.numpy()) for x in tensors]).numpy())]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.saved, name)


def serve_torch(folder: Path, network: str, port: int) -> None:
    """The process of torch's server: the application of the python engine, which calls torch's module."""
    import uvicorn

    from miniflow.serve import app

    application = app(folder / "torch")
    model = application.state.models[network]
    model.saved = TorchModel(network, folder / "weights.safetensors", model.saved)
    uvicorn.run(application, port=port, log_level="warning")


@contextmanager
def served(server: str, folder: Path, network: str, threads: int) -> Iterator[tuple[int, int]]:
    """The port of a server, and its process."""
    from miniflow.serve.server import get

    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    environment.pop("OPENBLAS_CORETYPE", None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    engine = "triton" if server == "triton" else "python"
    command = ["miniflow.serve", str(folder / server), "--engine", engine, "--http-port", str(port)]
    if server == "torch":
        command = ["benchmarks.serve", str(folder), network, str(port)]
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        while get(f"http://127.0.0.1:{port}/v2/models/{network}") is None:
            if process.poll() is not None:
                raise RuntimeError(f"the server {server} of {network} has ended")
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


# clients


def request_of(network: str) -> bytes:
    """A request with one image."""
    image = np.random.default_rng(0).standard_normal((1, *NETWORKS[network][1]), np.float32)
    kind = {"name": "INPUT_0", "shape": image.shape, "datatype": "FP32"}
    document = {"inputs": [{**kind, "parameters": {"binary_data_size": image.nbytes}}],
                "parameters": {"binary_data_output": True}}  # fmt: skip
    head = json.dumps(document).encode()
    lines = (f"POST /v2/models/{network}/infer HTTP/1.1", "Host: localhost", f"{HEADER}: {len(head)}",
             f"Content-Length: {len(head) + image.nbytes}", "", "")  # fmt: skip
    return "\r\n".join(lines).encode() + head + image.tobytes()


async def ask(port: int, request: bytes, seconds: float) -> tuple[list[float], bytes]:
    """One client: the seconds that each answer took, and the last answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found, end, body = [], time.perf_counter() + seconds, b""
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = await reader.readexactly(int(head.partition("\r\ncontent-length:")[2].split()[0]))
        found.append(time.perf_counter() - start)
        if " 200 " not in head:
            raise RuntimeError(body.decode())
    writer.close()
    return found, body


def cpu_seconds(process: int) -> float:
    """The CPU time of a process and of those that it started and that run."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = " ".join(path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")).split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") + sum(cpu_seconds(int(child)) for child in children)


def measure(port: int, process: int, request: bytes, clients: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Requests in a second, latencies and CPU time of the server per request in ms, and the numbers of an answer."""

    async def ask_all() -> list[tuple[list[float], bytes]]:
        return await asyncio.gather(*[ask(port, request, seconds) for _ in range(clients)])

    asyncio.run(ask_all())
    cpu, start = cpu_seconds(process), time.perf_counter()
    found = asyncio.run(ask_all())
    passed, cpu = time.perf_counter() - start, cpu_seconds(process) - cpu
    times = sorted(1e3 * x for one, _ in found for x in one)
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    numbers = np.frombuffer(found[0][1][found[0][1].rindex(b"}") + 1 :][:40], np.float32)
    return {"rate": len(times) / passed, "p50": statistics.median(times), "p99": p99, "cpu": 1e3 * cpu / len(times),
            "numbers": numbers}  # fmt: skip


def report(threads: int, names: Sequence[str] = tuple(NETWORKS), rounds: int = ROUNDS, seconds: float = SECONDS) -> str:
    """The table: medians of rounds in which the servers take turns."""
    rows = []
    for network in names:
        found: dict[tuple[str, int], list[dict]] = {}
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder), network)
            for _ in range(rounds):
                for server in SERVERS:
                    with served(server, Path(folder), network, threads) as (port, process):
                        for n in CLIENTS:
                            one = measure(port, process, request_of(network), n, seconds)
                            found.setdefault((server, n), []).append(one)
        answers = [one["numbers"] for several in found.values() for one in several]
        for numbers in answers[1:]:
            np.testing.assert_allclose(numbers, answers[0], 1e-4, 1e-4)
        for (server, n), several in sorted(found.items(), key=lambda item: item[0][1]):
            middle = {key: statistics.median(one[key] for one in several) for key in ("rate", "p50", "p99", "cpu")}
            rows.append(
                [network, n, server, f"{middle['rate']:.0f}", *(f"{middle[k]:.1f}" for k in ("p50", "p99", "cpu"))]
            )
    header = ["network", "clients", "server", "requests / s", "p50, ms", "p99, ms", "CPU ms / request"]
    return table(f"Serving one image per request, {threads} threads", header, rows)


if __name__ == "__main__":
    serve_torch(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
