"""Every kernel family on a real GPU, beside torch: time, bandwidth as a share of a device copy, FLOP/s.

Float32 with TF32 off. Times are those of the device, between two CUDA events: copies are put into the queue before, so
that what is measured waits in the queue until the host has submitted all of it. What the host needs for a call is in
a column of its own.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.gpu_cases import FAMILIES, FULL, TINY, Case, Sizes
from benchmarks.harness import BenchmarkError, in_process, table
from benchmarks.networks import load

CALLS, WINDOWS = 10, 15  # calls between two events, and how often; the table holds medians
COPIED = 1 << 28  # float32 of the measured device copy: 1 GiB
TOLERANCE = 2e-4  # relative to the largest result, since sums are added up in other orders
BOTH = ("miniflow", "torch")
NEEDS_GPU = "benchmarks.gpu measures a real GPU: "


def refusal() -> str:
    """Why there is nothing to measure here; empty on a machine with a GPU."""
    import miniflow as flow

    if flow.cuda.is_emulated():
        return NEEDS_GPU + "miniflow's cuda device is emulated on the CPU here"
    try:
        import torch
    except ImportError:
        return NEEDS_GPU + "there is one, but torch is not installed"
    return "" if torch.cuda.is_available() else NEEDS_GPU + "there is one, but torch was built without CUDA"


# in processes of their own


def measure(framework: str, threads: int, family: str, folder: str, dry: bool) -> dict:
    """For each case of a family: milliseconds of the device, those of the host, and bytes; results go to `folder`."""
    flow = load(framework, threads)
    device = "cpu" if dry and framework == "torch" else "cuda"
    sizes = TINY if dry else FULL
    if framework == "torch":
        use_full_float32(flow)
    clock = time_dry if dry else time_on_device
    found = {}
    for number, case in enumerate(FAMILIES[family]):
        call, given = prepared(flow, case, sizes, device)
        results = as_arrays(call())
        np.savez(Path(folder) / f"{framework} {number}.npz", *results)
        moved = case.moved(sizes) if case.moved else sum(a.nbytes for a in (*given, *results))
        found[case.name] = {**clock(flow, call), "bytes": moved, "flops": case.flops(sizes) if case.flops else 0}
    return found


def time_copy(framework: str, threads: int, dry: bool) -> dict:
    """Bytes that a copy within the device reads and writes in a second."""
    flow = load(framework, threads)
    x = flow.ones(1000) if dry else flow.ones(COPIED, device="cuda")
    y = flow.empty_like(x)
    found = (time_dry if dry else time_on_device)(flow, lambda: y.copy_(x))
    return {"bandwidth": 2 * 4e3 * math.prod(x.shape) / found["ms"]}


def device_name(framework: str, threads: int) -> dict:
    """What the table belongs to."""
    torch = load(framework, threads)
    return {
        "name": f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    }


def use_full_float32(torch: ModuleType) -> None:
    """No TF32, and the fastest of cuDNN's algorithms."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def prepared(flow: Any, case: Case, sizes: Sizes, device: str) -> tuple[Callable[[], Any], list[np.ndarray]]:
    """What is to be measured, and the arrays that it reads."""
    arrays = list(case.inputs(sizes))
    tensors = [flow.from_numpy(a).to(device) for a in arrays]
    if case.prepare:
        return case.prepare(flow, *tensors), arrays
    if case.wrt is None:
        return lambda: case.run(flow, *tensors), arrays
    wanted = [tensors[i].requires_grad_(True) for i in case.wrt]
    y = case.run(flow, *tensors)
    cotangent = np.random.default_rng(3).standard_normal(tuple(y.shape), dtype=np.float32)
    dy = flow.from_numpy(np.asarray(cotangent)).to(device)
    return lambda: flow.autograd.grad(y, wanted, dy, retain_graph=True), [*arrays, cotangent]


def as_arrays(results: Any) -> list[np.ndarray]:
    """One tensor, or several, on the host."""
    several = results if isinstance(results, tuple | list) else [results]
    return [np.asarray(t.detach().to("cpu").numpy()) for t in several]


def time_on_device(flow: Any, call: Callable[[], Any]) -> dict:
    """Milliseconds of a call on the device and on the host: medians over windows of several calls."""
    busy = flow.zeros(COPIED, device="cuda")
    other = flow.empty_like(busy)
    host = host_ms(flow, call)
    copies = 2 + math.ceil(2 * host * CALLS / host_ms(flow, lambda: other.copy_(busy), wait=True))
    times = []
    for _ in range(WINDOWS):
        start, end = (flow.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(copies):
            other.copy_(busy)
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS)
    return {"ms": statistics.median(times), "host": host}


def host_ms(flow: Any, call: Callable[[], Any], wait: bool = False) -> float:
    """Milliseconds until a call returns, or with `wait` until the device is done: the median over windows."""
    times = []
    for _ in range(WINDOWS):
        flow.cuda.synchronize()
        start = time.perf_counter()
        call()
        if wait:
            flow.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def time_dry(flow: Any, call: Callable[[], Any]) -> dict:
    """Without a GPU: one call on the clock, so that everything else can be tried."""
    start = time.perf_counter()
    call()
    milliseconds = 1e3 * (time.perf_counter() - start)
    return {"ms": milliseconds, "host": milliseconds}


# what they computed


def difference(folder: str, number: int, case: Case) -> float:
    """The largest difference between the results of the frameworks, relative to the largest result.

    Raises:
        BenchmarkError: if it is above the tolerance: the times then belong to different computations.
    """
    ours, theirs = (list(np.load(Path(folder) / f"{name} {number}.npz").values()) for name in BOTH)
    largest, tolerance = 0.0, 0.0 if theirs[0].dtype.kind in "iu" else TOLERANCE
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise BenchmarkError(f"{case.name}: got {a.dtype}{a.shape} from miniflow, {b.dtype}{b.shape} from torch")
        if case.random:  # four standard errors of the mean, and as much for the deviation
            tolerance = 8 / math.sqrt(a.size)
            a, b = (np.array([x.mean(dtype=float), x.std(dtype=float)]) for x in (a, b))
        scale = max(float(np.max(np.abs(b), initial=0)), 1e-30)
        largest = max(largest, float(np.max(np.abs(a.astype(float) - b), initial=0)) / scale)
    if not largest <= tolerance:
        raise BenchmarkError(f"{case.name}: the results differ by {largest:.1e}; expected {tolerance:.0e}")
    return largest


# the table


def row(case: Case, ours: dict, theirs: dict, bandwidth: float, differ: float) -> list[str]:
    """A line of the table."""
    times = [f"{1e3 * found['ms']:.1f}" for found in (ours, theirs)]
    if ours["flops"]:
        achieved, share = f"{ours['flops'] / ours['ms'] / 1e9:.2f} TFLOP/s", "-"
    else:
        rate = 1e3 * ours["bytes"] / ours["ms"]
        achieved, share = f"{rate / 1e9:.0f} GB/s", f"{rate / bandwidth:.0%}"
    host = [f"{1e3 * found['host']:.0f}" for found in (ours, theirs)]
    return [case.name, *times, f"{theirs['ms'] / ours['ms']:.2f}", achieved, share, *host, f"{differ:.0e}"]


def of_family(family: str, bandwidth: float, dry: bool) -> list[list[str]]:
    """Both frameworks, one after the other, and the lines of the table."""
    with tempfile.TemporaryDirectory() as folder:
        given: dict = {"family": family, "folder": folder, "dry": dry}
        ours, theirs = (in_process("gpu.measure", framework, 1, **given) for framework in BOTH)
        differ = {case.name: difference(folder, i, case) for i, case in enumerate(FAMILIES[family])}
    return [row(case, ours[case.name], theirs[case.name], bandwidth, differ[case.name]) for case in FAMILIES[family]]


def reports(families: Sequence[str] = (), dry: bool = False) -> Iterator[str]:
    """The table of each of these families, or of all."""
    bandwidth = in_process("gpu.time_copy", "torch", 1, dry=dry)["bandwidth"]
    if dry:
        yield "DRY RUN: no figure below means anything"
    else:
        yield in_process("gpu.device_name", "torch", 1)["name"]
    yield f"A copy within the device reads and writes {bandwidth / 1e9:.0f} GB/s"
    header = ["kernel", "miniflow us", "torch us", "speed: miniflow / torch", "miniflow achieves", "share of copy"]
    header += ["miniflow host us", "torch host us", "differ by"]
    for family in families or FAMILIES:
        yield table(f"{family}, float32 without TF32", header, of_family(family, bandwidth, dry))
