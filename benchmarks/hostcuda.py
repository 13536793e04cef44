"""The host executor of CUDA kernels: beside numba's simulator, beside loops by hand, and what compiling costs."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import BenchmarkError, in_process, in_turns, seconds_per_call, table
from benchmarks.launches import Launch, empty, empty_of_four, made, nans, numbers, title

SIMULATED = [("tiled matmul", 64), ("LayerNorm, trees in blocks", 64, 256), ("add", 1 << 14)]
CHECKED_ONLY = [("LayerNorm, Welford in warps", 64, 256)]  # the simulator knows no shuffles
HANDWRITTEN = [
    ("tiled matmul", 512),
    ("tiled matmul", 1024),
    ("naive matmul", 512),
    ("LayerNorm, Welford in warps", 4096, 256),
    ("LayerNorm, trees in blocks", 4096, 256),
    ("softmax of rows", 4096, 256),
    ("gelu", 1 << 20),
    ("sums of blocks", 256, 1 << 14),
    ("3x3 convolution, depthwise", 4, 32, 112),
    ("histogram", 1 << 20),
]
TIMES_FASTER, SHARE = 10_000, 0.5  # what is aimed at
TIMES_NJIT, TIMES_NJIT_OF_SUMS, COST_OF_CHECKS = 2.0, 4.0, 1.3
TOLERANCE = 2e-4  # relative to the largest result, since sums are added up in other orders
Case = Sequence[Any]


# a case in each of the frameworks: a call, and the arrays that it leaves


def on_device(launch: Launch, kernel: Any = None) -> tuple[Callable[[], None], Callable[[], list[np.ndarray]]]:
    """As a kernel of whatever `cuda` is in this process, on device arrays."""
    from miniflow.hostcuda import cuda

    placed = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in launch.arguments]
    configured = (kernel or launch.kernel)[launch.grid, launch.block, 0, launch.shared]
    arrays = [place for place, a in zip(placed, launch.arguments, strict=True) if isinstance(a, np.ndarray)]
    return lambda: configured(*placed), lambda: [a.copy_to_host() for a in arrays]


def on_host(launch: Launch, function: Callable) -> tuple[Callable[[], None], Callable[[], list[np.ndarray]]]:
    """As a function of NumPy arrays."""
    arrays = [a for a in launch.arguments if isinstance(a, np.ndarray)]
    return lambda: function(*launch.arguments), lambda: arrays


def prepared(framework: str, case: Case) -> tuple[Callable[[], None], Callable[[], list[np.ndarray]]] | None:
    """The case in a framework: the kernel for miniflow, loops for numba, functions for numpy; None if it has none."""
    from benchmarks import course_kernels, handwritten

    if case[0] in course_kernels.LAUNCHES:
        return prepared_course(framework, case)
    if framework == "miniflow":
        return on_device(made(case))
    function = {"numba": handwritten.HANDWRITTEN, "numpy": handwritten.NUMPY}[framework].get(case[0])
    return function and on_host(made(case), function)


def prepared_course(framework: str, case: Case) -> tuple[Callable[[], None], Callable[[], list[np.ndarray]]]:
    """The same for a kernel of `course_kernels`; "miniflow.unchecked" is the kernel without bounds checks."""
    from benchmarks import course_kernels
    from miniflow.hostcuda import cuda

    launch = course_kernels.LAUNCHES[case[0]](*case[1:])
    if framework == "numba":
        return on_host(launch, course_kernels.LOOPS[case[0]])
    checked = framework == "miniflow"
    return on_device(launch, launch.kernel if checked else cuda.jit(boundscheck=False)(launch.kernel.py_func))


# in processes of their own


def time_cases(framework: str, threads: int, cases: list[Case], folder: str, budget: float) -> dict:
    """Microseconds of each case; what the first call leaves is saved for `require_same`."""
    found = {}
    for case in cases:
        ready = prepared(framework, case)
        if ready:
            call, results = ready
            call()
            save(folder, framework, case, results())
            found[title(case)] = 1e6 * seconds_per_call(call, threads, budget)
    return found


def time_simulator(framework: str, threads: int, cases: list[Case], folder: str) -> dict:
    """Seconds of each case, run once: of a thread of Python's for each of CUDA's."""
    found = {}
    for case in cases:
        call, results = on_device(made(case))
        start = time.perf_counter()
        call()
        found[title(case)] = time.perf_counter() - start
        save(folder, "simulator", case, results())
    return found


def time_checks(framework: str, threads: int, cases: list[Case], folder: str) -> dict:
    """Seconds of each case in the executor that checks every access: the median of three runs."""
    from miniflow.hostcuda import cuda

    found = {}
    for case in cases:
        times = []
        for _ in range(3):
            launch = made(case)
            call, results = on_device(launch, cuda.jit(check=True)(launch.kernel.py_func))
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        found[title(case)] = statistics.median(times)
        save(folder, "checked", case, results())
    return found


def time_first_launch(framework: str, threads: int, family: str) -> dict:
    """Seconds of the first launch in this process, on the clock and of the CPU; imports are not counted."""
    from benchmarks.families import FAMILIES
    from miniflow.hostcuda import compile  # noqa: F401  (with numba)

    call, _ = on_device(FAMILIES[family]())
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def time_launches(framework: str, threads: int, budget: float) -> dict:
    """Microseconds of launches that do nothing."""
    bare, _ = on_device(Launch(empty, 1, 1, []))
    four, _ = on_device(Launch(empty_of_four, 1, 32, [numbers(8), numbers(8), nans(8), np.float32(1)]))
    return {
        "without arguments": 1e6 * seconds_per_call(bare, 1, budget),
        "with three arrays and a number": 1e6 * seconds_per_call(four, 1, budget),
    }


# what they computed


def save(folder: str, framework: str, case: Case, arrays: list[np.ndarray]) -> None:
    """Keep the arrays of a case for `require_same`."""
    np.savez(Path(folder) / f"{framework}, {title(case)}.npz", *arrays)


def require_same(folder: str, frameworks: Sequence[str], case: Case) -> None:
    """All frameworks left the same in all arrays; the first one is compared with the others.

    Raises:
        BenchmarkError: if not: the times then belong to different computations.
    """
    files = [Path(folder) / f"{framework}, {title(case)}.npz" for framework in frameworks]
    first, *others = [list(np.load(file).values()) for file in files if file.exists()]
    for arrays in others:
        for got, wanted in zip(first, arrays, strict=True):
            scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
            difference = float(np.max(np.abs(got.astype(float) - wanted), initial=0)) / scale
            if not difference <= TOLERANCE:
                raise BenchmarkError(f"{title(case)}: the results differ by {difference:.1e}; expected {TOLERANCE:.0e}")


# tables


def beside_simulator(simulated: list[Case], checked_only: list[Case], budget: float, rounds: int) -> str:
    """Times in the simulator, in the checked executor and in the compiled one."""
    every = [*simulated, *checked_only]
    with tempfile.TemporaryDirectory() as folder:
        given: dict = {"folder": folder, "cases": every}
        ours = in_turns("hostcuda.time_cases", ["miniflow"], 1, rounds, budget=budget, **given)["miniflow"]
        checked = in_process("hostcuda.time_checks", "miniflow", 1, **given)
        slow = {"NUMBA_ENABLE_CUDASIM": "1", "MINIFLOW_CUDA": "simulator", "MINIFLOW_CHECK": "0"}
        simulator = in_process("hostcuda.time_simulator", "numba", 1, slow, folder=folder, cases=simulated)
        for case in every:
            require_same(folder, ["miniflow", "simulator", "checked"], case)
    rows = []
    for name in map(title, every):
        there = simulator.get(name)
        ratio = f"{1e6 * there / ours[name]:,.0f}" if there else "-"
        seen = f"{there:.2f}" if there else "knows no shuffles"
        rows.append([name, seen, f"{checked[name]:.2f}", f"{ours[name]:.1f}", ratio])
    header = ["kernel", "simulator s", "check=True s", "compiled us", "simulator / compiled"]
    return table(f"Beside numba's simulator, 1 thread; to reach: {TIMES_FASTER:,}", header, rows)


def beside_loops(threads: int, cases: list[Case], budget: float, rounds: int) -> str:
    """Kernels beside loops written by hand, and NumPy."""
    with tempfile.TemporaryDirectory() as folder:
        given: dict = {"folder": folder, "cases": cases, "budget": budget}
        found = in_turns("hostcuda.time_cases", ["miniflow", "numba", "numpy"], threads, rounds, **given)
        for case in cases:
            require_same(folder, ["miniflow", "numba", "numpy"], case)
    rows = []
    for name in map(title, cases):
        kernel, loops, whole = (found[framework].get(name) for framework in ("miniflow", "numba", "numpy"))
        rows.append([name, f"{kernel:.0f}", f"{loops:.0f}", f"{whole:.0f}" if whole else "-", f"{loops / kernel:.2f}"])
    clock = "CPU time" if threads == 1 else "wall time"
    header = ["us", "kernel", "njit by hand", "numpy", "speed: kernel / njit"]
    return table(f"Beside njit(parallel=True), {threads} thread(s), {clock}; to reach: {SHARE}", header, rows)


def beside_best_loops(threads: int, budget: float, rounds: int, cases: list[Case] | None = None) -> str:
    """Kernels as courses write them, with and without bounds checks, beside loops written by hand."""
    from benchmarks.course_kernels import CASES

    frameworks, cases = ["miniflow", "miniflow.unchecked", "numba"], cases or CASES
    with tempfile.TemporaryDirectory() as folder:
        given: dict = {"folder": folder, "cases": cases, "budget": budget}
        found = in_turns("hostcuda.time_cases", frameworks, threads, rounds, **given)
        for case in cases:
            require_same(folder, frameworks, case)
    rows = []
    for name in map(title, cases):
        kernel, unchecked, loops = (found[framework][name] for framework in frameworks)
        times = [f"{seconds:.0f}" for seconds in (kernel, unchecked, loops)]
        rows.append([name, *times, f"{kernel / loops:.2f}", f"{kernel / unchecked:.2f}"])
    clock = "CPU time" if threads == 1 else "wall time"
    header = ["us", "kernel", "without bounds checks", "njit by hand", "kernel / njit", "with / without checks"]
    limits = f"to reach: {TIMES_NJIT} of njit, {TIMES_NJIT_OF_SUMS} for sums and scans; {COST_OF_CHECKS} for checks"
    return table(f"Kernels as courses write them, {threads} thread(s), {clock}; {limits}", header, rows)


def compile_times(families: Sequence[str]) -> str:
    """The first launch with an empty cache, and in the process after that."""
    rows = []
    for family in families:
        with tempfile.TemporaryDirectory() as cache:
            env = {"MINIFLOW_CACHE_DIR": cache}
            cold, warm = (in_process("hostcuda.time_first_launch", "miniflow", 1, env, family=family) for _ in range(2))
        rows.append([family, *(f"{found[clock]:.2f}" for found in (cold, warm) for clock in ("cpu", "wall"))])
    header = ["first launch of a kernel, s", "cold, CPU", "cold, wall", "warm, CPU", "warm, wall"]
    return table("Compiling, each in a process of its own, without imports; to reach: 3 s", header, rows)


def launch_times(budget: float, rounds: int) -> str:
    """What a launch costs that does nothing."""
    found = in_turns("hostcuda.time_launches", ["miniflow"], 1, rounds, budget=budget)["miniflow"]
    return table("An empty launch", ["launch", "us"], [[name, f"{found[name]:.1f}"] for name in found])


def reports(threads: Sequence[int] = (1, 2)) -> Iterator[str]:
    """All tables."""
    from benchmarks.families import FAMILIES

    if os.environ.setdefault("MINIFLOW_CUDA", "host") != "host":  # for all processes, also where there is a GPU
        raise BenchmarkError("MINIFLOW_CUDA is set: unset it, the host executor is to be measured")
    yield beside_simulator(SIMULATED, CHECKED_ONLY, budget=1.0, rounds=3)
    for count in threads:
        yield beside_loops(count, HANDWRITTEN, budget=1.0, rounds=3)
        yield beside_best_loops(count, budget=0.5, rounds=3)
    yield compile_times(list(FAMILIES))
    yield launch_times(budget=0.3, rounds=3)
