"""MPI ranks: they compute what simulated ranks do, to the bit; and what happens when one of them fails."""

import contextlib
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compare import assert_close

import miniflow as flow

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and mpiexec: the extra `mpi`"),
]


LAUNCH = [sys.executable, "-m", "miniflow.distributed.launch", "--nproc_per_node"]


def launch(ranks, *command, timeout=120, **environment):
    """`python -m miniflow.distributed.launch`, in an environment without the variables of another launch."""
    start = [*LAUNCH, str(ranks), *map(str, command)]
    path = os.pathsep.join([str(HERE.parent), str(Path(flow.__file__).parents[1])])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment}
    return subprocess.run(start, capture_output=True, text=True, timeout=timeout, env=env, check=False)


@pytest.fixture
def simulated():
    sys.path.insert(0, str(HERE))
    yield importlib.import_module("global_programs")
    sys.path.remove(str(HERE))
    flow.parallel.simulate(1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_same_both_ways(ranks, simulated, tmp_path):
    done = launch(ranks, HERE / "global_programs.py", tmp_path / "found.json")
    assert done.returncode == 0, done.stderr
    flow.parallel.simulate(ranks)
    want = json.loads(json.dumps(simulated.results()))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.keys() == want.keys()
    for name, (values, sent) in want.items():
        assert len(values) > 0 and found[name][0] == values, name
        assert found[name][1] == sent, name


SCRIPT = """
import os, sys, time
import miniflow as flow
rank, mode = flow.env.get_rank(), sys.argv[1]
assert os.environ["RANK"] == str(rank) and os.environ["WORLD_SIZE"] == str(flow.env.get_world_size())
x = flow.ones(4, 4, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
if mode == "raise" and rank == 1:
    raise ValueError("this rank fails")
if mode == "exit" and rank == 1:
    sys.exit(3)
if mode == "sleep" and rank == 1:
    time.sleep(600)
if mode == "other":
    y = x + x if rank == 1 else x * x
y = x.to_global(sbp=flow.sbp.broadcast)
print("done", rank, sys.argv[2:])
if mode == "hang":
    time.sleep(600)
"""


PARTS = """
import miniflow as flow
S, B, rank = flow.sbp.split, flow.sbp.broadcast, flow.env.get_rank()
x = flow.full(((2, 1, 2, 1)[rank], 2), float(rank))
y = x.to_global(flow.placement("cpu", [[0, 1], [2, 3]]), (S(0), S(0)))
assert y.shape == (6, 2) and y.numpy()[:, 0].tolist() == [0, 0, 1, 2, 2, 3]
x = flow.ones(2, 3, requires_grad=True)
(x.to_global(flow.placement("cpu", [3]), B) * 2).sum().backward()
assert x.grad.tolist() == [[2.0 * (rank == 3)] * 3] * 2
x = flow.zeros(4, 5, placement=flow.placement.all("cpu"), sbp=S(1))
x.t().contiguous().add_(1)
assert not x.numpy().any()
"""


def test_local_parts_that_differ(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    done = launch(4, tmp_path / "parts.py")
    assert done.returncode == 0, done.stderr


PYTORCH = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
x = torch.arange(24.0).reshape(12, 2) / 24
data = TensorDataset(x, x.sum(1, keepdim=True))
layer = nn.Linear(2, 1)
nn.init.constant_(layer.weight, 0.5), nn.init.zeros_(layer.bias)
model = DDP(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data, shuffle=False)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for a, b in DataLoader(data, batch_size=6 // dist.get_world_size(), sampler=sampler):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(a), b).backward()
        optimizer.step()
assert sorted(model.state_dict()) == ["module.bias", "module.weight"]
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total, op=dist.ReduceOp.SUM)
with model.join():
    model(x[: 2 + dist.get_rank()]).sum().backward()
work = dist.all_reduce(total.clone(), group=dist.new_group(), async_op=True)
assert isinstance(work, dist.Work) and work.wait()
objects = [None] * dist.get_world_size(dist.group.WORLD)
dist.all_gather_object(objects, {"rank": dist.get_rank()})
assert [one["rank"] for one in objects] == list(range(len(objects)))
y = torch.zeros(2)
if dist.get_rank() == 1:
    dist.isend(torch.ones(2), dst=0).wait()
elif len(objects) > 1:
    assert dist.recv(y, src=1) == 1 and y.tolist() == [1, 1]
print(total.item(), *[f"{value:.5f}" for value in model.module.weight.flatten().tolist()])
dist.destroy_process_group()
"""


def test_a_data_parallel_script_of_pytorch(tmp_path):
    (tmp_path / "train.py").write_text(PYTORCH)
    alone, both = (launch(n, "-m", "miniflow.mock_torch", tmp_path / "train.py") for n in (1, 2))
    assert alone.returncode == both.returncode == 0, both.stderr
    (one,) = alone.stdout.splitlines()
    first, second = both.stdout.splitlines()
    assert first == second and first.split()[0] == "1.0" and first.split()[1:] == one.split()[1:]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / f"script_{os.getpid()}.py"
    path.write_text(SCRIPT)
    yield path
    assert not running(path), "ranks were left running"


def running(path):
    """The processes with the script in their command line."""
    found = []
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found += [p] if str(path) in p.read_bytes().decode(errors="replace") else []
    return found


@pytest.mark.parametrize(("mode", "status", "message"), [("raise", 1, "ValueError: this rank fails"), ("exit", 3, "")])
def test_a_rank_that_fails_ends_all(mode, status, message, script):
    start = time.monotonic()
    done = launch(3, script, mode)
    assert done.returncode == status and message in done.stderr and "done" not in done.stdout
    assert time.monotonic() - start < 60


ENDS = """
import os, signal, sys, time
import miniflow as flow
rank, mode = flow.env.get_rank(), sys.argv[1]
if rank == 1 and mode == "begin":
    os._exit(0)
if rank == 1 and mode == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
flow.comm.barrier()
if rank == 1 and mode == "end":
    time.sleep(1)  # the other has ended
    os._exit(0)
sys.exit(0)
"""


@pytest.mark.parametrize("mode", ["begin", "end", "kill", "exit"])
def test_a_rank_that_does_not_end_as_python_ends_fails_the_job(mode, tmp_path):
    (tmp_path / "ends.py").write_text(ENDS)
    done = launch(2, tmp_path / "ends.py", mode)
    assert (done.returncode == 0) == (mode == "exit"), done.stderr
    assert ("ranks did not end as Python ends" in done.stderr) == (mode in ("begin", "end"))


LINES = """
import sys
import miniflow as flow
rank = flow.env.get_rank()
flow.comm.barrier()
for i in range(1000):
    for stream in (sys.stdout, sys.stderr):
        print("rank", rank, "line", i, "x" * (i % 90), end=" ", file=stream)
        print("end", rank, file=stream)
print("unfinished", rank, end="")
"""


def test_lines_of_ranks_stay_whole(tmp_path):
    (tmp_path / "lines.py").write_text(LINES)
    done = launch(3, tmp_path / "lines.py")
    want = sorted(f"rank {rank} line {i} {'x' * (i % 90)} end {rank}" for rank in range(3) for i in range(1000))
    lines = done.stdout.splitlines()
    assert sorted(lines[:-1]) == want and sorted(done.stderr.splitlines()) == want
    assert sorted(lines[-1].split("unfinished")) == ["", " 0", " 1", " 2"]


def test_a_prompt_appears(tmp_path):
    (tmp_path / "prompt.py").write_text('print("a", end="? ", flush=True); print(input())')
    process = subprocess.Popen(
        [*LAUNCH, "1", tmp_path / "prompt.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.read(3) == "a? "
    assert process.communicate("yes\n", timeout=30)[0] == "yes\n"


def test_a_rank_that_does_not_come_is_named(script):
    done = launch(2, script, "sleep", MINIFLOW_TIMEOUT_SECONDS="2")
    assert done.returncode != 0
    assert "rank 0 has waited for 2 s for ranks [1] in all_gather" in done.stderr
    assert "y = x.to_global(sbp=flow.sbp.broadcast)" in done.stderr


def test_ranks_that_run_different_operators_are_compared(script):
    done = launch(2, script, "other", MINIFLOW_CHECK_RANKS="1")
    assert done.returncode == 1
    assert "rank 0 runs mul(float32[4, 4] S(0), float32[4, 4] S(0))" in done.stderr
    assert "rank 1 runs add(float32[4, 4] S(0), float32[4, 4] S(0))" in done.stderr


@pytest.mark.parametrize("check", ["0", "1"])
def test_ranks_that_call_other_collectives_are_refused(check, tmp_path):
    """Without the check by what comes from the others, with it before anything is sent; models in both cases."""
    done = launch(
        2, HERE / "disagree.py", tmp_path / "state", MINIFLOW_CHECK_RANKS=check, MINIFLOW_TIMEOUT_SECONDS="60"
    )
    assert done.returncode == 0 and done.stdout.split() == ["right"] * 2, done.stderr


def test_what_programs_use_of_torch_distributed():
    done = launch(3, HERE / "torch_distributed.py", MINIFLOW_TIMEOUT_SECONDS="60")
    assert done.returncode == 0 and done.stdout.split() == ["right"] * 3, done.stderr


@pytest.mark.parametrize("number", [2, 15])
def test_signals_end_all(number, script):
    process = subprocess.Popen(
        [*LAUNCH, "2", str(script), "hang"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout.readline().startswith("done")
    process.send_signal(number)
    assert process.wait(30) != 0
    deadline = time.monotonic() + 10
    while running(script) and time.monotonic() < deadline:
        time.sleep(0.1)


def launch_nodes(script, *arguments):
    """The launchers of two nodes of two ranks, both on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    nodes = [
        subprocess.Popen(
            [*LAUNCH, "2", "--nnodes", "2", "--node_rank", node, "--master_port", port, str(script), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"MINIFLOW_NODE": node},
        )
        for node in "10"
    ]  # fmt: skip
    return nodes[::-1]


NODES = """
import os, sys
import miniflow as flow
rank, local = flow.env.get_rank(), flow.env.get_local_rank()
assert (rank, local) == (int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])) and flow.env.get_node_size() == 2
assert os.environ["MINIFLOW_NODE"] == str(rank // 2) and local == rank % 2 and os.environ["WORLD_SIZE"] == "4"
x = flow.ones(6, 4, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
total = x.sum().item()
if rank == 3 and sys.argv[1] == "raise":
    raise ValueError("this rank fails")
print(f"done {total} {sys.argv[1:]}\\n", end="")
"""


def test_two_nodes(tmp_path):
    (tmp_path / "nodes.py").write_text(NODES)
    first, other = launch_nodes(tmp_path / "nodes.py", "it's", "a b")
    out, errors = first.communicate(timeout=60)
    assert first.returncode == other.wait(30) == 0, errors
    assert sorted(out.split("\n")) == ["", *["done 24.0 [\"it's\", 'a b']"] * 4]


def test_a_rank_that_fails_ends_all_nodes(tmp_path):
    (tmp_path / "nodes.py").write_text(NODES)
    first, other = launch_nodes(tmp_path / "nodes.py", "raise")
    assert "ValueError: this rank fails" in first.communicate(timeout=60)[1]
    assert first.returncode == other.wait(30) == 1


@pytest.mark.parametrize(("node", "number"), [(0, 2), (0, 15), (1, 2), (1, 15), (1, 9)])
def test_signals_end_all_nodes(node, number, script):
    nodes = launch_nodes(script, "hang")
    assert nodes[0].stdout.readline().startswith("done")
    nodes[node].send_signal(number)
    assert all(process.wait(30) != 0 for process in nodes)
    deadline = time.monotonic() + 10
    while running(script) and time.monotonic() < deadline:
        time.sleep(0.1)


def test_nodes_that_do_not_come_are_named():
    options = ["--nnodes", "3", "--node_rank"]
    done = launch(1, *options, "0", "--master_port", "29613", "script.py", MINIFLOW_TIMEOUT_SECONDS="1")
    assert done.returncode == 1 and "node 0 has waited for 1 s for nodes [1, 2]" in done.stderr
    done = launch(1, *options, "2", "--master_port", "29613", "script.py", MINIFLOW_TIMEOUT_SECONDS="1")
    assert done.returncode == 1 and "node 2 did not find node 0 at 127.0.0.1:29613" in done.stderr


def test_output_and_arguments(script, tmp_path):
    done = launch(2, "--redirect_stdout_and_stderr", "--logdir", tmp_path / "log", script, "plain", "-x", "1")
    assert done.returncode == 0 and done.stdout == ""
    for rank in range(2):
        text = (tmp_path / "log" / f"local_rank_{rank}" / "stdout").read_text()
        assert text == f"done {rank} ['-x', '1']\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [(["-m", "--no_python"], "expected one of them"), (["--master_port", "65536"], "less than 65536"),
     (["--nproc_per_node", "0"], "at least 1"), (["--nnodes", "2", "--node_rank", "2"], "expected less")],
)  # fmt: skip
def test_wrong_options(options, message):
    done = launch(1, *options, "script.py")
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.parametrize("ranks", [2, 3])
def test_data_parallel_training_is_training_on_whole_batches(ranks, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    script = importlib.import_module("ddp_script")
    done = launch(ranks, HERE / "ddp_script.py", tmp_path / "found.json")
    assert done.returncode == 0, done.stderr
    losses, parameters = json.loads((tmp_path / "found.json").read_text())
    flow.manual_seed(0)
    want, weights = script.train(script.model())
    assert_close(losses, want, rtol=1e-5, atol=0)
    for p, q in zip(parameters, weights, strict=True):
        assert_close(p, q, rtol=1e-4, atol=1e-6)


CHECKPOINT = """
import sys
import numpy as np
import miniflow as flow
everyone = flow.placement.all("cpu")
x = flow.tensor(np.arange(35, dtype=np.float32).reshape(5, 7), placement=everyone, sbp=flow.sbp.split(0))
y = flow.zeros(5, 7, placement=everyone, sbp=flow.sbp.split(1))
if sys.argv[1] == "save":
    flow.distributed.checkpoint.save({"x": x}, sys.argv[2])
else:
    flow.distributed.checkpoint.load({"x": y}, sys.argv[2])
    assert (y == x).all().item()
"""


def test_a_checkpoint_of_four_ranks_is_loaded_by_two(tmp_path):
    script = tmp_path / "checkpoint.py"
    script.write_text(CHECKPOINT)
    for ranks, what in ((4, "save"), (2, "load")):
        done = launch(ranks, script, what, tmp_path / "state")
        assert done.returncode == 0, done.stderr


FULL = """
import resource, sys
import miniflow as flow
from miniflow.errors import FileWriteError
if flow.env.get_rank() == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
x = flow.ones(4, 500, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
try:
    flow.distributed.checkpoint.save({"x": x}, sys.argv[1])
except FileWriteError as error:
    print("told:", error)
"""


def test_a_checkpoint_that_one_rank_cannot_write_is_told_to_all(tmp_path):
    (tmp_path / "script.py").write_text(FULL)
    done = launch(2, tmp_path / "script.py", tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"told: save: cannot write {tmp_path / 'state'}: ") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_programs_in_the_manner_of_oneflow():
    done = launch(4, HERE / "oneflow_programs.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["global_tensors", "two_dimensional_sbp", "hybrid_stages", "data_parallel"]


CUDA = """
import itertools, sys
import numpy as np
import miniflow as flow
from miniflow.backends.cuda.array import DeviceArray

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
n, rank = flow.env.get_world_size(), flow.env.get_rank()
everyone = flow.placement.all("cuda")
copies, read = [], DeviceArray.numpy
DeviceArray.numpy = lambda self: copies.append(self.shape) or read(self)

found = []
for dtype, (before, after) in itertools.product(
    [flow.float32, flow.float16], itertools.permutations([S(0), S(1), B, P], 2)
):
    values = flow.arange(35, device="cuda").view(5, 7).to(dtype)
    x = values.to_global(everyone, B).to_global(sbp=before)
    found.append(x.to_global(sbp=after))
    if before != P:
        found.append(x.to_global(flow.placement("cuda", list(range(n))[::-1]), after))
z = flow.ones(3, device="cuda") * rank
flow.comm.all_reduce(z)
parts = [flow.zeros(3, device="cuda") for _ in range(n)]
flow.comm.all_to_all(parts, [z + i for i in range(n)])
flow.comm.broadcast(parts[0], 1)
whole = flow.zeros(3 * n, device="cuda")
flow.comm.all_gather_into_tensor(whole, parts[0])
if rank == 0:
    flow.comm.send(whole * 2, 1)
elif rank == 1:
    whole = flow.comm.recv(0, device="cuda")
assert bool(copies) == (sys.argv[1] == "0"), copies
model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(2, 2).cuda())
copies.clear()
model(flow.ones(1, 2, device="cuda") * rank).sum().backward()
assert copies == [], copies  # gradients do not wait for the host

for y in found:
    np.testing.assert_array_equal(y.numpy(), np.arange(35).reshape(5, 7))
np.testing.assert_array_equal(whole.cpu().numpy(), np.full(3 * n, (n * (n - 1) / 2 + 1) * (2 if rank == 1 else 1)))
np.testing.assert_array_equal(model.weight.grad.cpu().numpy(), np.full((2, 2), (n - 1) / 2))
print("right")
"""


@pytest.mark.parametrize("aware", ["0", "1"])
def test_arrays_on_devices(aware, tmp_path):
    """An MPI that reads the memory of devices gets them as they are: nothing is copied to the CPU.

    The memory of an emulated device is that of the CPU, so any MPI can read it.
    """
    (tmp_path / "script.py").write_text(CUDA)
    done = launch(3, tmp_path / "script.py", aware, MINIFLOW_CUDA_AWARE_MPI=aware)
    assert done.returncode == 0 and done.stdout.count("right") == 3, done.stderr


ON_A_GPU = """
import gpu_stand_in as gpu
gpu.install()
import numpy as np
import miniflow as flow
rank, nn = flow.env.get_rank(), flow.nn
draw = np.random.default_rng(0)
inputs, weights = draw.normal(size=(3, 2, 4, 5)).astype("f4"), draw.normal(size=(6, 5, 5)).astype("f4") / 2
def network(device):
    model = nn.Sequential(*[nn.Linear(5, 5, bias=False) for _ in weights])
    for layer, weight in zip(model, weights):
        layer.weight.data.copy_(flow.tensor(weight))
    return model.to(device)
alone, trained = network("cpu"), nn.parallel.DistributedDataParallel(network("cuda:0"), bucket_size=2)
for step in range(3):
    for model in (alone, trained):
        for p in model.parameters():
            p.grad = None
    (alone(flow.tensor(inputs[step])) ** 2).mean().backward()
    loss = (trained(flow.tensor(inputs[step, rank]).to("cuda:0")) ** 2).mean()
    loss.item()
    gpu.calls.clear()
    loss.backward()
    assert "cuStreamSynchronize" not in gpu.calls and gpu.calls["cuMemcpyDtoHAsync"] == 3, gpu.calls
    for p, q in zip(alone.parameters(), trained.parameters(), strict=True):
        np.testing.assert_allclose(q.grad.cpu().numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6)
print("right")
"""


def test_gradients_leave_a_gpu_while_backward_goes_on(tmp_path):
    """The stand-in does work when someone waits for it: sums of gradients that had not arrived would be wrong."""
    (tmp_path / "script.py").write_text(ON_A_GPU)
    done = launch(2, tmp_path / "script.py", MINIFLOW_CUDA="")
    assert done.returncode == 0 and done.stdout.count("right") == 2, done.stderr


OWN_DEVICE = """
import miniflow as flow
rank = flow.env.get_rank()
x = flow.ones(2, device="cuda") + rank
assert x.device == flow.device("cuda", rank) and flow.cuda.current_device() == rank
whole = x.to_global(flow.placement.all("cuda"), flow.sbp.split(0))
assert (whole.to_local() + x).tolist() == [2 + 2 * rank] * 2
print("right")
"""


def test_each_rank_begins_with_a_device_of_its_own(tmp_path):
    (tmp_path / "script.py").write_text(OWN_DEVICE)
    done = launch(2, tmp_path / "script.py", MINIFLOW_DEVICES="2")
    assert done.returncode == 0 and done.stdout.count("right") == 2, done.stderr


def test_a_process_that_was_not_started_as_a_rank_says_so():
    env = {**os.environ, "WORLD_SIZE": "2", "RANK": "1"}
    command = [sys.executable, "-c", "import miniflow as flow; print(flow.env.get_rank(), flow.env.get_world_size())"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "0 1\n" and "WORLD_SIZE is 2, but this process is alone" in done.stderr


SYNC = """
import numpy as np
import miniflow as flow
rank, size, nn = flow.env.get_rank(), flow.env.get_world_size(), flow.nn
draw = np.random.default_rng(0)
layers = [nn.BatchNorm2d(3, momentum=m, affine=a).double() for m, a in ((0.1, True), (None, True), (0.3, False))]
for plain in layers:
    x, g = draw.normal(size=(2, 7, 3, 2, 2))
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(plain))
    assert type(synchronized[0]) is nn.SyncBatchNorm and synchronized.state_dict().keys() == {
        f"0.{name}" for name in plain.state_dict()
    }
    plain = nn.BatchNorm2d(3, momentum=plain.momentum, affine=plain.affine).double()
    for step in range(2):
        ours, whole = (flow.tensor(v, requires_grad=True) for v in (x[rank::size], x))
        y, want = synchronized(ours * (step + 1)), plain(whole * (step + 1))
        np.testing.assert_allclose(y.detach().numpy(), want.detach().numpy()[rank::size], rtol=1e-9, atol=1e-11)
        (y * flow.tensor(g[rank::size])).sum().backward()
        (want * flow.tensor(g)).sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), whole.grad.numpy()[rank::size], rtol=1e-9, atol=1e-11)
    for p, q in zip(synchronized.parameters(), plain.parameters(), strict=True):
        total = p.grad.clone()
        flow.comm.all_reduce(total)
        np.testing.assert_allclose(total.numpy(), q.grad.numpy(), rtol=1e-9)
    for name, value in plain.state_dict().items():
        np.testing.assert_allclose(synchronized.state_dict()["0." + name].numpy(), value.numpy(), rtol=1e-9)
    synchronized.eval(), plain.eval()
    np.testing.assert_allclose(synchronized(ours).detach().numpy(), plain(ours).detach().numpy(), rtol=1e-9)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_batch_norm_of_all_ranks(ranks, tmp_path):
    (tmp_path / "sync.py").write_text(SYNC)
    done = launch(ranks, tmp_path / "sync.py")
    assert done.returncode == 0, done.stderr


LARGE = """
import numpy as np
import pytest
import miniflow as flow
from miniflow.errors import ArgumentError
from miniflow.parallel.comm import mpi
mpi.MOST = 160  # stands in for a gigabyte
rank, n = flow.env.get_rank(), flow.env.get_world_size()
everyone = flow.placement.all("cpu")
values = np.arange(35 * n, dtype=np.float32).reshape(5 * n, 7)
x = flow.tensor(values, placement=everyone, sbp=flow.sbp.split(0))
for sbp in (flow.sbp.broadcast, flow.sbp.split(1), flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.broadcast):
    x = x.to_global(sbp=sbp)
    np.testing.assert_array_equal(x.numpy(), values)
total = flow.tensor(values) * rank
flow.comm.all_reduce(total)
np.testing.assert_array_equal(total.numpy(), values * sum(range(n)))
flow.comm.broadcast(total, 1)
parts = [flow.zeros(5 * n, 7) for _ in range(n)]
flow.comm.all_gather(parts, flow.tensor(values) + rank)
assert all((p.numpy() == values + i).all() for i, p in enumerate(parts))
if rank == 0:
    flow.comm.send(flow.ones(40), 1)
    with pytest.raises(ArgumentError, match="got a tensor of 164 bytes; expected at most 160 in a message"):
        flow.comm.send(flow.ones(41), 1)
    flow.comm.send(flow.ones(2), 1)
elif rank == 1:
    assert [flow.comm.recv(0).sum().item() for _ in range(2)] == [40, 2]
print("right")
"""


def test_arrays_larger_than_a_message(tmp_path):
    """MPI counts in ints of 32 bits: what is larger goes in several messages, or is refused."""
    (tmp_path / "large.py").write_text(LARGE)
    done = launch(3, tmp_path / "large.py")
    assert done.returncode == 0 and done.stdout.count("right") == 3, done.stderr


DEVICES = """
import os
import miniflow as flow
os.environ["MPI_LOCALRANKID"] = str(flow.env.get_rank() % 2)  # as on machines of two ranks each
from miniflow.parallel import world
assert world.device("cuda", flow.env.get_rank()).index == flow.cuda.current_device() == flow.env.get_local_rank()
print("right")
"""


def test_the_device_of_a_rank_is_by_its_number_on_its_machine(tmp_path):
    (tmp_path / "devices.py").write_text(DEVICES)
    done = launch(3, tmp_path / "devices.py", MINIFLOW_DEVICES="3")
    assert done.returncode == 0 and done.stdout.count("right") == 3, done.stderr


def test_gathering_numbers(tmp_path):
    (tmp_path / "gather.py").write_text(
        "import miniflow as flow\n"
        "rank, found = flow.env.get_rank(), [flow.zeros(()), flow.zeros(())]\n"
        "flow.comm.all_gather(found, flow.tensor(1.5 + rank))\n"
        "assert [x.item() for x in found] == [1.5, 2.5]\n"
    )
    done = launch(2, tmp_path / "gather.py")
    assert done.returncode == 0, done.stderr


EARLY = """
import miniflow as flow
from miniflow.parallel import world
from miniflow.parallel.comm.mpi import MpiCommunicator

early, receive = [], MpiCommunicator.receive
def counted(self, x, rank, tag):
    early.append((rank, tag) in self._expected)
    receive(self, x, rank, tag)
MpiCommunicator.receive = counted

places = [flow.placement("cpu", [rank]) for rank in range(2)]
layers = flow.nn.ModuleList([flow.nn.Linear(4, 4).to_global(place, flow.sbp.broadcast) for place in places])

class Training(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.layers = layers
        for i, place in enumerate(places):
            self.layers[i].to(flow.nn.graph.GraphModule).set_stage(i, place)
        self.add_optimizer(flow.optim.SGD(layers.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(4)

    def build(self, x):
        for layer, place in zip(self.layers, places):
            x = layer(x.to_global(placement=place, sbp=flow.sbp.broadcast))
        loss = (x * x).mean()
        loss.backward()
        return loss

graph = Training()
x = flow.ones(8, 4, placement=places[0], sbp=flow.sbp.broadcast)
graph(x), early.clear(), graph(x)
assert not world.communicator()._expected
print(early)
"""


def test_a_stage_receives_while_it_computes(tmp_path):
    """All but the first of the micro-batches: the message is expected before the stage asks for it."""
    (tmp_path / "early.py").write_text(EARLY)
    done = launch(2, tmp_path / "early.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[False, True, True, True]"] * 2
