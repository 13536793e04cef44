"""Optimizer updates: one pass over parameters, their gradients and their states, several parameters in one launch.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  parameter k
    thread i of those                                  ->  element i of it and of its states, changed in place

SGD reads two elements and writes one (with momentum three and two); Adam reads four and writes three. What does not
depend on the element, as the bias correction of Adam, is computed on the host; but for the bound on the norm of the
gradient, which only the device knows. The rules are those of `formulas.update_rules`, which a thread calls for its
element.
"""

from __future__ import annotations

import numpy as np

from miniflow.formulas.update_rules import RULES
from miniflow.hostcuda import cuda
from miniflow.kernels.together import array_and_block


@cuda.jit(device=True)
def bound(norm, max_norm):
    """min(1, max_norm / (norm + 1e-6)), float64; a negative max_norm is none, and `norm` is not read."""
    if max_norm < 0:
        return 1.0
    shrink = max_norm / (np.float64(norm[0]) + 1e-6)
    return 1.0 if shrink >= 1 else shrink


def make_update(rule):
    """The kernel that updates parameters by a rule, see `update_rules`.

    Args of the kernel; a tuple has an entry for each parameter of the launch:
        starts: the first block of every parameter, and the number of all blocks.
        arrays: tuple of tuples (parameter, gradient, *states): 1-D arrays of one dtype, float32 or float64.
        numbers: tuple of tuples of the rule's numbers, of that dtype.
        norms: tuple of arrays (1,), or of any array if there is no bound.
        max_norm: float64, the bound on the norms, see `bound`.
    """
    rule = cuda.jit(device=True)(rule)

    @cuda.jit
    def update(starts, arrays, numbers, norms, max_norm):
        k, block = array_and_block(starts)
        of_parameter, i = arrays[k], block * cuda.blockDim.x + cuda.threadIdx.x
        if i < of_parameter[0].size:
            shrink = of_parameter[0].dtype.type(bound(norms[k], max_norm))
            rule(i, i + 1, shrink, numbers[k], *of_parameter)

    return update


UPDATES = {name: make_update(rule.update) for name, rule in RULES.items()}
"""The kernels by the name of their rule."""
