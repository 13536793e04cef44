"""Global tensors and data parallel training: simulated ranks, and MPI ranks where mpi4py is installed.

`python -m benchmarks.parallel NAME` is what each MPI rank runs; rank 0 prints what it measured as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import LIMIT, POOLS, ROOT, BenchmarkError, in_process, seconds_per_call, table

SIDE = 8  # of the operands that show what a call costs
MEGABYTES = 64
BOXINGS = {
    "S(0) to B": "Allgatherv",
    "P to B": "Allreduce",
    "P to S(0)": "Reduce_scatter",
    "S(0) to S(1)": "packing, Alltoallv",
}


def on_ranks(name: str, ranks: int) -> dict:
    """What rank 0 of an MPI world with one thread a rank measured."""
    command = [sys.executable, "-m", "miniflow.distributed.launch", "--nproc_per_node", str(ranks)]
    environment = {**os.environ, **dict.fromkeys(POOLS, "1")}
    environment.pop("OPENBLAS_CORETYPE", None)
    result = subprocess.run(
        [*command, "-m", "benchmarks.parallel", name],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    if result.returncode:
        raise BenchmarkError(f"{name} on {ranks} ranks ended with code {result.returncode}:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


# what a call costs


def time_calls(framework: str, threads: int, ranks: int) -> dict:
    """Microseconds of operators on local tensors, and on global ones of simulated ranks."""
    import miniflow as flow

    flow.parallel.simulate(ranks)
    everyone = flow.placement.all("cpu")
    local = [flow.rand(SIDE, SIDE) for _ in range(2)]
    spread = [flow.rand(SIDE * ranks, SIDE, placement=everyone, sbp=flow.sbp.split(0)) for _ in range(2)]
    whole = flow.rand(SIDE, SIDE, placement=everyone, sbp=flow.sbp.broadcast)
    calls = {
        "x + y": (lambda x, y: x + y, spread),
        "relu(x)": (lambda x, y: flow.relu(x), spread),
        "x @ y": (lambda x, y: x @ y, [spread[0], whole]),
        "x.sum()": (lambda x, y: x.sum(), spread),
        "x[1:3]": (lambda x, y: x[:, 1:3], spread),
    }
    result = {}
    for name, (call, operands) in calls.items():
        result[name] = 1e6 * seconds_per_call(lambda: call(*local), threads, budget=0.3)  # noqa: B023
        result[name + " global"] = 1e6 * seconds_per_call(lambda: call(*operands), threads, budget=0.3)  # noqa: B023
    return result


def calls_table() -> str:
    """What the dispatcher adds to the sum of its local operators."""
    rows = []
    for ranks in (1, 2, 4):
        found = in_process("parallel.time_calls", "miniflow", 1, ranks=ranks)
        for name in [name for name in found if not name.endswith(" global")]:
            one, all_of_them = found[name], found[name + " global"]
            cells = [f"{t:.1f}" for t in (one, all_of_them, all_of_them - ranks * one)]
            rows.append([name, ranks, *cells])
    title = f"Operators on global tensors, shards of {SIDE}x{SIDE} float32, simulated, CPU time"
    return table(title, ["op, us", "ranks", "local", "global", "overhead"], rows)


# boxing


def time_boxing() -> dict:
    """Milliseconds of a boxing, and of the bare collective, in turns."""
    from mpi4py import MPI

    import miniflow as flow

    comm, n = MPI.COMM_WORLD, flow.env.get_world_size()
    side = int((MEGABYTES * 2**20 / 4) ** 0.5)
    everyone = flow.placement.all("cpu")
    sbp = {"S(0)": flow.sbp.split(0), "S(1)": flow.sbp.split(1), "B": flow.sbp.broadcast, "P": flow.sbp.partial_sum}
    whole, part = np.ones(side * side, np.float32), np.ones(side * side // n, np.float32)
    other = np.empty_like(part)
    rows = part.reshape(side // n, side)

    def packed() -> np.ndarray:
        return np.concatenate([columns.reshape(-1) for columns in np.split(rows, n, 1)])

    bare: dict[str, Callable[[], Any]] = {
        "Allgatherv": lambda: comm.Allgatherv(part, np.empty_like(whole)),
        "Allreduce": lambda: comm.Allreduce(whole, np.empty_like(whole)),
        "Reduce_scatter": lambda: comm.Reduce_scatter(whole, np.empty_like(part)),
        "packing, Alltoallv": lambda: comm.Alltoallv([packed(), [part.size // n] * n], [other, [part.size // n] * n]),
    }
    result = {}
    for name, collective in BOXINGS.items():
        before, after = name.split(" to ")
        x = flow.ones(side, side, placement=everyone, sbp=sbp[before])
        times: dict[str, list[float]] = {name: [], collective: []}
        for _ in range(9):
            for key, call in ((name, lambda: x.to_global(sbp=sbp[after])), (collective, bare[collective])):  # noqa: B023
                comm.Barrier()
                start = time.perf_counter()
                call()
                comm.Barrier()
                times[key].append(1e3 * (time.perf_counter() - start))
        result |= {key: statistics.median(found[1:]) for key, found in times.items()}
    return result


def boxing_table() -> str:
    """Boxing beside MPI's own collective."""
    rows = []
    for ranks in (2, 4):
        found = on_ranks("boxing", ranks)
        for name, collective in BOXINGS.items():
            mine, bare = found[name], found[collective]
            rows.append([name, ranks, f"{mine:.1f}", f"{bare:.1f} {collective}", f"{mine / bare:.2f}"])
    return table(
        f"Boxing of {MEGABYTES} MB, MPI, wall time", ["boxing, ms", "ranks", "miniflow", "mpi4py", "ratio"], rows
    )


# training


def time_ddp() -> dict:
    """Images per second of LeNet with a global batch of 128, and without averaging: what the cores can do at most."""
    import miniflow as flow
    from miniflow import nn

    n, rank = flow.env.get_world_size(), flow.env.get_rank()
    flow.manual_seed(0)
    images, labels = (x[rank:128:n] for x in flow.data.mnist("train").tensors)
    models = {"averaged": flow.vision.models.LeNet(), "apart": flow.vision.models.LeNet()}
    nn.parallel.DistributedDataParallel(models["averaged"])
    optimizers = {name: flow.optim.SGD(m.parameters(), lr=0.01, momentum=0.9) for name, m in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(40):
        for name, model in models.items():  # in turns, so that what else the machine does slows both
            times[name].append(step_seconds(model, optimizers[name], images, labels))
    return {name: 128 / statistics.median(each[5:]) for name, each in times.items()}


def step_seconds(model: Any, optimizer: Any, x: Any, y: Any) -> float:
    """The wall time of a step; all ranks wait for each other before and after it."""
    import miniflow as flow

    flow.comm.barrier()
    start = time.perf_counter()
    loss = flow.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    flow.comm.barrier()
    return time.perf_counter() - start


def ddp_table() -> str:
    """Throughput of data parallel training."""
    rows: list[list[Any]] = []
    one: dict[str, float] = {}
    for ranks in (1, 2):
        runs = [on_ranks("ddp", ranks) for _ in range(3)]
        rate = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        one = one or rate
        cells = [[f"{rate[name]:.0f}", f"{rate[name] / one[name]:.2f}"] for name in ("averaged", "apart")]
        rows.append([ranks, *cells[0], *cells[1]])
    title = "DistributedDataParallel, LeNet, global batch 128, one thread a rank, MPI"
    return table(title, ["ranks", "images/s", "speed-up", "not averaged", "speed-up"], rows)


def time_layouts(framework: str = "miniflow", threads: int = 1, ranks: int = 0) -> dict:
    """Milliseconds and bytes of a step of a multilayer perceptron in data parallel and tensor parallel layouts."""
    import miniflow as flow
    from miniflow import nn

    if ranks:
        flow.parallel.simulate(ranks)
    everyone, split, broadcast = flow.placement.all("cpu"), flow.sbp.split, flow.sbp.broadcast
    result = {}
    for name in ("data parallel", "tensor parallel"):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).to_global(everyone, broadcast)
        batch = split(0)
        if name == "tensor parallel":
            batch = broadcast
            for p, sbp in ((model[0].weight, split(0)), (model[0].bias, split(0)), (model[2].weight, split(1))):
                p.data = p.data.to_global(sbp=sbp)
        optimizer = flow.optim.SGD(model.parameters(), lr=0.01)
        x = flow.rand(128, 784, placement=everyone, sbp=batch)
        y = flow.zeros(128, dtype=flow.int64, placement=everyone, sbp=batch)
        before, steps = total_bytes(flow), 15
        times = [step_seconds(model, optimizer, x, y) for _ in range(steps)]
        result[name] = 1e3 * statistics.median(times[3:])
        result[name + " bytes"] = (total_bytes(flow) - before) // steps
    return result


def total_bytes(flow: Any) -> int:
    """What all ranks have sent."""
    mine = sum(flow.parallel.stats().values())
    world = flow.parallel.world
    return mine if len(world.owned()) > 1 else sum(world.communicator().all_gather_object(mine, range(world.size())))


def layouts_table() -> str:
    """Steps of one model in two layouts."""
    rows = []
    for ranks in (1, 2, 4):
        kinds = {"simulated": in_process("parallel.time_layouts", "miniflow", 1, ranks=ranks)}
        if has_mpi():
            kinds["MPI"] = on_ranks("layouts", ranks)
        for kind, found in kinds.items():
            for name in ("data parallel", "tensor parallel"):
                rows.append([name, ranks, kind, f"{found[name]:.2f}", f"{found[name + ' bytes']:,.0f}"])
    title = "A step of an MLP 784-512-10 with global tensors, batch 128, one thread a rank, wall time"
    return table(title, ["layout", "ranks", "kind", "ms", "bytes sent"], rows)


def has_mpi() -> bool:
    """Whether MPI ranks can be started."""
    return importlib.util.find_spec("mpi4py") is not None


def reports() -> Iterator[str]:
    """All tables."""
    yield calls_table()
    yield layouts_table()
    if has_mpi():
        yield boxing_table()
        yield ddp_table()
    else:
        yield '\nNo MPI ranks: pip install "miniflow-edu[mpi]"'


if __name__ == "__main__":
    found = {"boxing": time_boxing, "ddp": time_ddp, "layouts": time_layouts}[sys.argv[1]]()
    import miniflow as flow

    if flow.env.get_rank() == 0:
        print(json.dumps(found))
