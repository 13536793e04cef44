"""What each rung reads and writes, counted: `python -m miniflow.kernels.ladders`, or with names of ladders after it.

The kernels run with all checks. Change one and run this again: it says what is wrong with it, and what it costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from miniflow.hostcuda import cuda

# ladder -> what it is counted for, and the shapes of the arrays that its rungs get
EXAMPLES = {
    "transpose": ("element", [(64, 96)]),
    "matmul": ("output", [(128, 64), (64, 128)]),
    "convolution": ("output", [(4, 16, 10, 10), (64, 16, 3, 3)]),
    "layer_norm": ("element", [(32, 256), (256,), (256,)]),
    "reduction": ("number", [(65536,)]),
    "softmax": ("element", [(8, 1024)]),
    "pooling": ("output", [(2, 34, 34)]),
}
TITLES = "reads,writes,atomics,shared reads,shared requests,passes/request,sectors/request,off by".split(",")


def counts(name: str) -> Iterator[tuple[str, int, Any, np.ndarray]]:
    """For each rung of a ladder: its name, the number of elements to divide by, all accesses of a launch, the result.

    Raises:
        KernelCheckError: if the checks find anything.
    """
    unit, shapes = EXAMPLES[name]
    draw = np.random.default_rng(0)
    operands = [draw.standard_normal(shape, dtype=np.float32) for shape in shapes]
    for title, rung in import_module(f"miniflow.kernels.ladders.{name}").rungs(*operands).items():
        kernel = cuda.jit(profile=True)(rung.kernel.py_func)
        rung._replace(kernel=kernel).run()
        yield title, operands[0].size if unit == "number" else rung.result.size, kernel.profile.total, rung.result


def table(name: str) -> str:
    """The counts of a ladder's rungs for an element, the passes of shared memory and the 32-byte sectors of global
    memory that a warp's request takes, and the largest difference from the result of the first rung."""
    rows = [[f"{name}, for each {EXAMPLES[name][0]}", *TITLES]]
    wanted = None
    for title, elements, total, result in counts(name):
        wanted = result if wanted is None else wanted
        accesses = total.global_loads, total.global_stores, total.atomics, total.shared_loads, total.shared_requests
        numbers = [
            *(n / elements for n in accesses),
            total.passes / max(1, total.shared_requests),
            total.sectors / total.global_requests,
            np.abs(result - wanted).max(),
        ]
        rows.append([f"  {title}", *(f"{n:.4g}" for n in numbers)])
    return "\n".join(row[0].ljust(28) + "".join(cell.rjust(17) for cell in row[1:]) for row in rows)


if __name__ == "__main__":
    names = sys.argv[1:] or list(EXAMPLES)
    if not set(names) <= set(EXAMPLES):
        sys.exit(f"got {' '.join(names)}; the ladders are {' '.join(EXAMPLES)}")
    print("\n\n".join(map(table, names)))
