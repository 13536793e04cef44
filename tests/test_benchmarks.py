"""The benchmarks measure what they say: fresh processes, equal computations, medians."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import miniflow as flow
from benchmarks import (
    course_kernels,
    families,
    gpu,
    gpu_cases,
    graph,
    handwritten,
    harness,
    hostcuda,
    launches,
    loader,
    networks,
    passes,
    rewrites,
    serve,
)
from benchmarks.__main__ import main
from miniflow.graph.config import PASSES
from miniflow.hostcuda import cuda
from miniflow.hostcuda.compile import Translation

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent


def test_a_measurement_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    found = harness.in_process("ops.time_numpy", "numpy", 1)
    assert set(found) == {"x + y", "x * y", "x + 1.5", "exp(x)", "relu(x)", "x @ y", "x.sum()", "x.reshape(-1)",
                          "x.transpose(0, 1)"}  # fmt: skip
    assert all(0.01 < microseconds < 1000 for microseconds in found.values())
    assert "unset (was Haswell)" in harness._coretype()


def test_a_failing_measurement_shows_its_traceback():
    with pytest.raises(harness.BenchmarkError, match="(?s)training.time_step .* ended with code 1.*KeyError: 'vgg'"):
        harness.in_process("training.time_step", "miniflow", 1, network="vgg", batch=1)


def test_the_network_learns_and_repeats():
    first, second = (harness.in_process("training.time_step", "miniflow", 1, network="mlp", batch=16) for _ in range(2))
    assert first["losses"] == second["losses"]
    assert first["losses"][-1] < 0.8 * first["losses"][0] and first["ms"] > 0.05


@pytest.mark.parametrize(("network", "batch"), [("mlp", 4), ("encoder", 1)])
def test_a_graph_is_compared_with_the_same_step(network, batch):
    eager, replayed = (
        harness.in_process("graph.time_step", framework, 1, network=network, batch=batch, calls=2)
        for framework in ("miniflow", "miniflow.graph")
    )
    assert replayed["losses"] == pytest.approx(eager["losses"], rel=1e-5)
    assert replayed["ms"] > 0 and replayed["first"] > 0


def test_planned_memory_stands_beside_that_of_eager_arrays():
    eager, planned = (
        harness.in_process("graph.memory", framework, 1, network="mlp", batch=64)
        for framework in ("miniflow", "miniflow.graph")
    )
    weights = 4 * (784 * 256 + 256 * 128 + 128 * 10) / 1e6  # at least the largest gradient
    assert 0.8 * weights < planned["arrays"] < eager["arrays"] < 5 * weights
    assert planned["resident"] > 50 and eager["resident"] > 50


def test_resnet18_has_as_many_parameters_as_published():
    model = networks.resnet18(flow.nn)
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    assert model(flow.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_replays_on_a_device_are_compared():
    pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    text = graph.captured_table([2], dry=True)
    assert "| mlp batch 2 " in text


def test_seconds_per_call_is_the_time_of_one_call():
    def spin():
        end = time.process_time() + 0.002
        while time.process_time() < end:
            pass

    assert 0.002 <= harness.seconds_per_call(spin, threads=1, budget=0.2, windows=5) < 0.004


def test_different_losses_are_refused():
    assert harness.require_equal("mlp", [2.0, 1.0], [2.0, 1.0001], 1e-4) == pytest.approx(5e-5)
    with pytest.raises(harness.BenchmarkError, match="mlp: losses .* differ by 5.0e-04; expected 1e-04"):
        harness.require_equal("mlp", [2.0, 1.0], [2.0, 1.001], 1e-4)
    with pytest.raises(harness.BenchmarkError, match="differ by nan"):
        harness.require_equal("mlp", [float("nan")], [2.0], 1e-4)
    with pytest.raises(harness.BenchmarkError, match="got 1 and 2 losses"):
        harness.require_equal("mlp", [2.0], [2.0, 1.0], 1e-4)


def test_table_lines_up():
    text = harness.table("Title", ["a", "long name"], [["x", 1], ["wide cell", 2.5]])
    assert text.splitlines()[3:] == [
        "| a         | long name |",
        "|-----------|-----------|",
        "| x         | 1         |",
        "| wide cell | 2.5       |",
    ]


def test_unknown_table_is_an_error():
    command = [sys.executable, "-m", "benchmarks", "speed"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert (
        "there is no table speed; expected some of ops, layers, training, graph, passes, sparse, startup, parallel, "
        "hostcuda, rewrites, models, onnx, loader, serve, gpu" in result.stderr
    )


def test_loaders_read_the_same_images(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed: pip install miniflow-edu[vision]")
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed: pip install --no-deps torchvision")
    loader.write_images(tmp_path, 6)
    found = [harness.in_process("loader.time_epoch", name, 1, folder=str(tmp_path)) for name in ("miniflow", "torch")]
    assert found[0]["means"] == pytest.approx(found[1]["means"], abs=1e-5)
    assert all(0.1 < report[key] < 1000 for report in found for key in ("wall", "cpu"))


def test_submitted_steps_have_the_losses_of_steps_by_turns():
    pytest.importorskip("PIL", reason="Pillow is not installed: pip install miniflow-edu[vision]")
    found = harness.in_process("loader.time_submit", "miniflow", 1, turns=1)
    called, submitted = found.pop("losses")
    assert submitted == called and len(called) == loader.STEPS
    assert found.keys() == {"loading", "steps", "by turns", "submitted"} and min(found.values()) > 0


def test_models_compute_the_same():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install --no-deps timm")
    outputs = [
        harness.in_process("models.time_model", framework, 1, model="timm/test_vit")["outputs"]
        for framework in ("torch", "miniflow", "miniflow.graph")
    ]
    assert outputs[1] == pytest.approx(outputs[0], rel=1e-4, abs=1e-4)
    assert outputs[2] == pytest.approx(outputs[0], rel=1e-4, abs=1e-4)


# hostcuda

SMALL = [
    ("naive matmul", 20),
    ("tiled matmul", 32),
    ("LayerNorm, Welford in warps", 3, 64),
    ("LayerNorm, trees in blocks", 2, 300),
    ("softmax of rows", 2, 70),
    ("add", 300),
    ("gelu", 300),
    ("sums of blocks", 2, 300),
    ("3x3 convolution, depthwise", 2, 3, 7),
    ("histogram", 300),
]
on_host = pytest.mark.skipif(not flow.cuda.is_emulated(), reason="cuda is a GPU here; these run on the host executor")


@on_host
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case[0])
def test_what_is_compared_computes_the_same(case, tmp_path, monkeypatch):
    monkeypatch.setattr(handwritten, "own_histograms", handwritten.own_histograms.py_func)
    frameworks = ["kernel"]
    launch = launches.made(case)
    call, results = hostcuda.on_device(launch, cuda.jit(check=True)(launch.kernel.py_func))
    call()
    hostcuda.save(tmp_path, "kernel", case, results())
    for functions in (handwritten.HANDWRITTEN, handwritten.NUMPY):
        if case[0] in functions:
            function = functions[case[0]]
            call, results = hostcuda.on_host(launches.made(case), getattr(function, "py_func", function))
            call()
            frameworks.append("loops" if functions is handwritten.HANDWRITTEN else "numpy")
            hostcuda.save(tmp_path, frameworks[-1], case, results())
    assert len(frameworks) == (2 if case[0] == "gelu" else 3)  # NumPy has no erf
    hostcuda.require_same(tmp_path, frameworks, case)
    hostcuda.save(tmp_path, "wrong", case, [1.01 * array for array in results()])
    with pytest.raises(harness.BenchmarkError, match=f"{case[0]} .*the results differ by .*e-.*; expected 2e-04"):
        hostcuda.require_same(tmp_path, ["kernel", "wrong"], case)


COURSE = {name: (256,) for name in course_kernels.LAUNCHES} | {
    **{name: (32,) for name in course_kernels.LAUNCHES if "matmul" in name or "convolution" in name},
    **{"transpose": (40,), "stencil": (40,), "stencil, tiled": (40,), "Mandelbrot": (20,)},
    **{"softmax, blocks of (32, 4)": (6, 70), "LayerNorm, two trees": (2, 300)},
}


@on_host
@pytest.mark.parametrize("name", COURSE)
def test_kernels_of_courses_compute_the_same_as_loops(name, tmp_path, monkeypatch):
    monkeypatch.setattr(handwritten, "own_histograms", handwritten.own_histograms.py_func)
    launch, loops = course_kernels.LAUNCHES[name](*COURSE[name]), course_kernels.LOOPS[name]
    call, results = hostcuda.on_device(launch, cuda.jit(check=True)(launch.kernel.py_func))
    call()
    hostcuda.save(tmp_path, "kernel", (name,), results())
    call, results = hostcuda.on_host(course_kernels.LAUNCHES[name](*COURSE[name]), getattr(loops, "py_func", loops))
    call()
    hostcuda.save(tmp_path, "loops", (name,), results())
    hostcuda.require_same(tmp_path, ["kernel", "loops"], (name,))
    hostcuda.save(tmp_path, "wrong", (name,), [1.01 * array for array in results()])
    with pytest.raises(harness.BenchmarkError, match="the results differ by"):
        hostcuda.require_same(tmp_path, ["kernel", "wrong"], (name,))


def test_all_that_is_measured_is_compared_above():
    assert set(course_kernels.LAUNCHES) == set(course_kernels.LOOPS) == {case[0] for case in course_kernels.CASES}
    measured = {case[0] for case in hostcuda.SIMULATED + hostcuda.CHECKED_ONLY + hostcuda.HANDWRITTEN}
    assert measured <= {case[0] for case in SMALL} == set(launches.LAUNCHES) == set(handwritten.HANDWRITTEN)


@on_host
@pytest.mark.parametrize("row", range(len(rewrites.ROWS)), ids=lambda row: rewrites.ROWS[row][0])
def test_a_program_without_a_rewrite_is_another(row, monkeypatch):
    monkeypatch.setattr(Translation, "compile", lambda self: lambda *blocks_and_arguments: 0)  # texts are enough
    _, case, patches = rewrites.ROWS[row]
    programs = [rewrites.program(case, left_out) for left_out in ((), patches)]
    (text, call, _), (other, *_) = programs
    call()
    assert text != other and "def blocks(" in other


def test_a_rewrite_that_changes_nothing_or_too_much_is_told(monkeypatch):
    case = ("double, in a while loop", 64)
    rows = [
        ("none", case, []),
        ("wrong", case, [("emit.Emitter._nodes", lambda *_: None)]),
    ]
    monkeypatch.setattr(rewrites, "ROWS", rows)
    with pytest.raises(harness.BenchmarkError, match="none: double, in a while loop 64 is the same program without it"):
        rewrites.measure("miniflow", 1, 0)
    with pytest.raises(harness.BenchmarkError, match="wrong: double, .* computes something else without it"):
        rewrites.measure("miniflow", 1, 1)


@on_host
@pytest.mark.parametrize("family", families.FAMILIES)
def test_the_launches_of_the_families_are_right(family):
    launch = families.FAMILIES[family]()
    call, results = hostcuda.on_device(launch, cuda.jit(check=True)(launch.kernel.py_func))
    call()  # raises with the findings
    assert all(np.isfinite(array).all() for array in results())


@on_host
def test_the_tables_of_hostcuda(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CUDA", "host")
    simulated = hostcuda.beside_simulator([("add", 300)], [("softmax of rows", 2, 40)], budget=0.01, rounds=1)
    assert "| add 300 " in simulated and simulated.count("knows no shuffles") == 1
    loops = hostcuda.beside_loops(2, [("add", 3000)], budget=0.01, rounds=1)
    assert float(loops.splitlines()[-1].split("|")[-2]) > 0 and "2 thread(s), wall time" in loops
    compiled = hostcuda.compile_times(["elementwise: add"]).splitlines()[-1].split("|")
    cold, warm = float(compiled[2]), float(compiled[4])
    assert 0 < warm < cold
    assert "with three arrays and a number" in hostcuda.launch_times(budget=0.01, rounds=1)


def test_another_executor_is_not_measured(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CUDA", "simulator")
    with pytest.raises(harness.BenchmarkError, match="MINIFLOW_CUDA is set: unset it"):
        next(hostcuda.reports())


# gpu


@on_host
def test_gpu_refuses_the_emulator():
    command = [sys.executable, "-m", "benchmarks", "gpu"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == ("benchmarks.gpu measures a real GPU: miniflow's cuda device is emulated on the CPU here\n")


def test_gpu_in_a_dry_run(tmp_path):
    pytest.importorskip("torch", reason="the table is made beside torch")
    output = tmp_path / "table.md"
    assert main(["gpu", "--dry-run", "--families", "elementwise", "optim", "--output", str(output)]) == 0
    text = output.read_text()
    assert "DRY RUN" in text
    for case in gpu_cases.FAMILIES["elementwise"] + gpu_cases.FAMILIES["optim"]:
        assert f"| {case.name} " in text


@on_host
def test_the_clock_of_the_gpu(monkeypatch):
    """The emulated device has events too; with them everything can be tried but the times themselves."""
    monkeypatch.setattr(gpu, "COPIED", 1000)
    calls = []
    x = flow.ones(8, device="cuda")
    found = gpu.time_on_device(flow, lambda: calls.append(x + 1))
    assert found["ms"] >= 0 and found["host"] > 0
    assert len(calls) == gpu.WINDOWS * (gpu.CALLS + 1)


def test_gpu_compares_results(tmp_path):
    case = gpu_cases.FAMILIES["elementwise"][0]
    for name, value in (("miniflow", 1.0), ("torch", 1.001)):
        np.savez(tmp_path / f"{name} 0.npz", np.full(3, value, np.float32))
    with pytest.raises(harness.BenchmarkError, match=r"x \+ y: the results differ by 1.0e-03; expected 2e-04"):
        gpu.difference(tmp_path, 0, case)
    np.savez(tmp_path / "torch 0.npz", np.full(4, 1.0, np.float32))
    with pytest.raises(harness.BenchmarkError, match=r"got float32\(3,\) from miniflow, float32\(4,\) from torch"):
        gpu.difference(tmp_path, 0, case)


BY_OPTION = {"autocast", "accumulation", "checkpointing", "pipeline", "sparse_update", "zero"}  # what the user asks for


def test_every_pass_shows_what_it_buys():
    """Dropping dead code alone has no row: other passes leave it behind."""
    assert [name for name, *_ in passes.ROWS] == [n for n in PASSES if n not in {*BY_OPTION, "dead_code"}]
    row = [name for name, *_ in passes.ROWS].index("multi_tensor_update")
    found = passes.measure("miniflow", 1, row, calls=3)
    assert all(0 < ms < 1000 for ms in found["ms"]) and all(0 < size < 1 for size in found["MB"])


def test_servers_answer_the_same_and_stand_beside_each_other():
    pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    lines = serve.report(1, ["lenet"], rounds=1, seconds=0.3).strip().splitlines()
    assert lines[0] == "Serving one image per request, 1 threads"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[4:]]
    assert [row[:3] for row in rows] == [["lenet", n, s] for n in ("1", "8", "64") for s in serve.SERVERS]
    assert all(float(number) > 0 for row in rows for number in row[3:])
