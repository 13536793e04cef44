"""What runs on a GPU where there is one, on a stand-in whose driver fails as the real one does; see `gpu_stand_in`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

START = """
import threading, warnings
import gpu_stand_in as gpu
gpu.install({devices})
import numpy as np
import miniflow as flow
from miniflow.backends.cuda import streams
assert not flow.cuda.is_emulated() and flow.cuda.device_count() == {devices}
def in_a_thread(function):
    failed = []
    def run():
        try:
            function()
        except BaseException as error:
            failed.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
"""


def run(script: str, devices: int = 1) -> list[str]:
    """The lines that a script prints in a process that has so many GPUs."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MINIFLOW_C", "NUMBA_ENABLE"))}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "script.py")
        file.write_text(START.format(devices=devices) + script)
        done = subprocess.run([sys.executable, file], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_stand_in_fails_as_a_driver_does():
    script = """
from miniflow.hostcuda import numba_cuda
driver = numba_cuda.package().module("cudadrv.driver")
stream = gpu.Stream(gpu.gpus[0])
try:
    driver.host_to_device(None, np.zeros(1), 8, stream)
except driver.CudaAPIError as error:
    print(error)
with gpu.gpus[0]:
    try:
        driver.host_to_device(None, flow.ones(1, dtype=flow.bfloat16).numpy(), 2, stream)
    except ValueError as error:
        print(error)
with gpu.gpus[1]:
    try:
        stream.synchronize()
    except driver.CudaAPIError as error:
        print(error)
x = flow.arange(3, device="cuda")._array
late = np.full(3, 7)
with gpu.gpus[0]:
    numba_cuda.copy_to_host(late, x.layout, 0, streams.default(0).raw)
    print(late.tolist())
    streams.default(0).synchronize()
    print(late.tolist())
"""
    assert run(script, devices=2) == [
        "[201] Call to cuMemcpyHtoDAsync results in CUDA_ERROR_INVALID_CONTEXT",
        "cannot include dtype 'E' in a buffer",
        "[400] Call to cuStreamSynchronize results in CUDA_ERROR_INVALID_HANDLE",
        "[7, 7, 7]",
        "[0, 1, 2]",
    ]


def test_a_process_and_a_thread_copy_before_they_launch():
    script = """
def copies():
    x = flow.tensor([1.5, -2.0, 0.25], device="cuda:0")  # "cuda" asks for the current device, which makes one current
    print(x.cpu().tolist())
copies()
in_a_thread(copies)
in_a_thread(lambda: print(flow.cuda.mem_get_info()[1] > 0))
in_a_thread(flow.cuda.empty_cache)
in_a_thread(flow.cuda.synchronize)
print("cuMemFree" in gpu.calls, "cuMemFree without a context" in gpu.calls, "cuLaunchKernel" in gpu.calls)
"""
    assert run(script) == ["[1.5, -2.0, 0.25]", "[1.5, -2.0, 0.25]", "True", "True False False"]


@pytest.mark.slow
def test_streams_and_events_in_a_thread():
    script = """
side, start, end = flow.cuda.Stream(), flow.cuda.Event(enable_timing=True), flow.cuda.Event(enable_timing=True)
def work():
    start.record()
    with flow.cuda.stream(side):
        y = flow.full((4,), 2.0, device="cuda") * 3
        end.record()
    flow.cuda.current_stream().wait_event(end)
    while not end.query():
        pass
    print(start.elapsed_time(end), y.cpu().tolist(), side.query())
in_a_thread(work)
end.synchronize()
side.synchronize()
"""
    assert run(script) == ["1.0 [6.0, 6.0, 6.0, 6.0] True"]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int8", "float64"])
def test_copies_of_every_kind_of_element(dtype):
    script = f"""
values = np.array([[0, 1, 3], [-2, 5, 0]]).astype(flow.{dtype}.numpy)
x = flow.tensor(values, device="cuda")
print(x.cpu().dtype, np.array_equal(x.cpu().numpy(), values), np.array_equal(x.T.cpu().numpy(), values.T))
print(flow.tensor(values[0, 1], device="cuda").cpu().numpy() == values[0, 1])
"""
    assert run(script) == [f"miniflow.{dtype} True True", "True"]


@pytest.mark.slow
def test_training_with_autocast_to_bfloat16():
    script = """
flow.manual_seed(0)
losses = {}
for device in ("cpu", "cuda"):
    flow.manual_seed(0)
    model = flow.nn.Sequential(flow.nn.Linear(6, 8), flow.nn.ReLU(), flow.nn.Linear(8, 3)).to(device)
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    x, y = flow.randn(5, 6).to(device), flow.tensor([0, 1, 2, 0, 1]).to(device)
    losses[device] = []
    for _ in range(3):
        with flow.autocast(device, dtype=flow.bfloat16):
            loss = flow.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[device].append(loss.item())
print(np.allclose(losses["cpu"], losses["cuda"], rtol=0.02), losses["cuda"][2] < losses["cuda"][0])
"""
    assert run(script) == ["True True"]


def test_our_launches_do_not_warn_of_small_grids_and_those_of_users_do():
    script = """
from miniflow.hostcuda import cuda
@cuda.jit
def double(x):
    x[cuda.grid(1)] *= 2
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = flow.ones(3, device="cuda") + 1
    print(len(caught))
    double[1, 3, streams.default(0).raw, 0](x._array.handle)
    print(x.cpu().tolist(), [str(warning.message) for warning in caught])
"""
    assert run(script) == ["0", "[4.0, 4.0, 4.0] ['Grid size 1 will likely result in GPU under-utilization']"]


def test_copies_between_devices_do_not_pass_through_the_host():
    script = """
x = flow.arange(6, device="cuda").reshape(2, 3).bfloat16()
gpu.calls.clear()
y = x.T.to("cuda:1")
print({name: count for name, count in gpu.calls.items() if "cuMemcpy" in name})
x *= 0
print(y.device, y.cpu().float().tolist(), x.to("cuda:1").sum().item())
"""
    assert run(script, devices=2) == ["{'cuMemcpyDtoDAsync': 1}", "cuda:1 [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] 0.0"]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_ranks_that_are_simulated_send_on_the_devices(devices):
    script = """
from miniflow.sbp import B, P, S
flow.parallel.simulate(3)
where = flow.placement("cuda", [0, 1, 2])
values = np.arange(35.0).reshape(5, 7)
x = {sbp: flow.tensor(values, placement=where, sbp=B).to_global(sbp=sbp) for sbp in (B, P, S(0), S(1))}
gpu.calls.clear()
found = [(x[a].to_global(sbp=b), (a, b)) for a in x for b in x]
z = flow.ones(3, device="cuda")
flow.comm.all_reduce(z)
y = x[S(0)] @ x[P].T
print({name for name in gpu.calls if "DtoH" in name or "HtoD" in name})
print([pair for t, pair in found if not np.array_equal(t.numpy(), values)], z.tolist())
print(np.array_equal(y.numpy(), values @ values.T))
"""
    assert run(script, devices) == ["set()", "[] [3.0, 3.0, 3.0]", "True"]
