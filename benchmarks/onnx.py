"""Models of torchvision through ONNX: exported, loaded, and run as a graph beside onnxruntime."""

from __future__ import annotations

import importlib
import math
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import in_process, in_turns, require_equal, seconds_per_call, table
from benchmarks.models import faster, numbers

MODELS = ("resnet50", "mobilenet_v2", "vit_b_16")
TOLERANCE = 1e-3
SHAPE = (1, 3, 224, 224)


def export(framework: str, threads: int, model: str, path: str) -> dict:
    """The seconds that the export of a model of torchvision with random weights takes, and the bytes of its weights."""
    flow = importlib.import_module(framework)
    flow.mock_torch.enable()
    network = importlib.import_module("torchvision").models.get_model(model).eval()
    draw = np.random.default_rng(0)
    values = {
        name: flow.tensor(numbers(name, tuple(value.shape), draw)) if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    network.load_state_dict(values)
    start = time.perf_counter()
    flow.onnx.export(network, flow.zeros(*SHAPE), path)
    seconds = time.perf_counter() - start
    return {"s": seconds, "bytes": sum(4 * math.prod(p.shape) for p in network.parameters())}


def load(framework: str, threads: int, path: str) -> dict:
    """The seconds that loading takes, and by how many bytes the most memory that the process had grows."""
    onnx = importlib.import_module(framework).onnx
    before, start = peak(), time.perf_counter()
    module = onnx.load(path)
    seconds = time.perf_counter() - start
    return {"s": seconds, "bytes": peak() - before, "parameters": len(list(module.parameters()))}


def peak() -> int:
    """The most memory that the process had, in bytes."""
    scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, KB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def infer(framework: str, threads: int, path: str) -> dict:
    """The time of a call in ms, and what it computes."""
    images = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    call = runner(framework, threads, path, images)
    outputs = np.asarray(call()).ravel().tolist()
    return {"ms": 1e3 * seconds_per_call(call, threads), "outputs": outputs}


def runner(framework: str, threads: int, path: str, images: np.ndarray) -> Any:
    """A function that runs the model of a file on these images."""
    if framework == "onnxruntime":
        ort = importlib.import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda: session.run(None, {name: images})[0]
    flow = importlib.import_module("miniflow")
    network = faster(flow, framework, flow.onnx.load(path).eval())
    tensor = flow.from_numpy(images)

    def call() -> np.ndarray:
        with flow.no_grad():
            return network(tensor).numpy()

    return call


def report(threads: int) -> str:
    """The table for this number of threads."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            path = str(Path(folder, f"{model}.onnx"))
            exported = in_process("onnx.export", "miniflow", threads, model=model, path=path)
            loaded = in_process("onnx.load", "miniflow", threads, path=path)
            found = in_turns("onnx.infer", ["miniflow.graph", "onnxruntime"], threads, path=path)
            ours, theirs = found["miniflow.graph"], found["onnxruntime"]
            require_equal(model, ours["outputs"], theirs["outputs"], TOLERANCE)
            memory = loaded["bytes"] / exported["bytes"]
            cells = [f"{x['ms']:.1f}" for x in (ours, theirs)]
            times = [f"{x['s']:.2f}" for x in (exported, loaded)]
            rows.append([model, *cells, f"{ours['ms'] / theirs['ms']:.2f}", *times, f"{memory:.2f}"])
    header = ["inference", "miniflow.graph ms", "onnxruntime ms", "ratio", "export s", "load s", "memory / weights"]
    clock = "CPU time" if threads == 1 else "wall time"
    return table(f"Models of torchvision through ONNX, batch 1; {threads} thread(s), {clock}", header, rows)
