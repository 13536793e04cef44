"""Optimizer updates: one pass over parameters, their gradients and their states, several parameters in one launch.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  parameter k
    thread i of those                                  ->  element i of it and of its states, changed in place

SGD reads two elements and writes one (with momentum three and two); Adam reads four and writes three. What does not
depend on the element, as the bias correction of Adam, is computed on the host; but for the bound on the norm of the
gradient, which only the device knows. The arithmetic of one element is that of `update_rules`.
"""

from __future__ import annotations

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.together import array_and_block
from miniflow.update_rules import RULES


@cuda.jit(device=True)
def bound(norm, max_norm):
    """min(1, max_norm / (norm + 1e-6)), float64; a negative max_norm is none, and `norm` is not read."""
    if max_norm < 0:
        return 1.0
    shrink = max_norm / (np.float64(norm[0]) + 1e-6)
    return 1.0 if shrink >= 1 else shrink


def make_update(element, kept):
    """The kernel that updates parameters by a rule of `kept` states, see `update_rules`.

    Args of the kernel; a tuple has an entry for each parameter of the launch:
        starts: the first block of every parameter, and the number of all blocks.
        params, grads, first, second, third: tuples of 1-D arrays of one dtype, float32 or float64.
        present: tuple of three bools: which states there are; a tuple of any array stands in for one that there is not.
        norms: tuple of arrays (1,), or of any array if there is no bound.
        own: tuple of tuples of the parameter's own numbers, of that dtype.
        numbers: tuple of numbers of that dtype, for all parameters.
        factor: float64, what gradients are multiplied by.
        decay: float64, the weight decay: times the parameter it is added to its gradient.
        max_norm: float64, the bound on the norms, see `bound`.
    """
    element = cuda.jit(device=True)(element)

    @cuda.jit
    def update(starts, params, grads, first, second, third, present, norms, own, numbers, factor, decay, max_norm):
        k, block = array_and_block(starts)
        param, grad = params[k], grads[k]
        a, b, c = first[min(k, len(first) - 1)], second[min(k, len(second) - 1)], third[min(k, len(third) - 1)]
        i = block * cuda.blockDim.x + cuda.threadIdx.x
        if i < param.size:
            real = param.dtype.type
            g = real(factor) * grad[i] * real(bound(norms[min(k, len(norms) - 1)], max_norm))
            if decay != 0:  # 0 * inf is nan
                g += real(decay) * param[i]
            states = (a[i] if present[0] else real(0), b[i] if present[1] else real(0), c[i] if present[2] else real(0))
            param[i], states = element(param[i], g, states[:kept], own[k], numbers)
            if present[0]:
                a[i] = states[0]
            if kept > 1 and present[1]:
                b[i] = states[1]
            if kept > 2 and present[2]:
                c[i] = states[2]

    return update


UPDATES = {name: make_update(rule.element, rule.states) for name, rule in RULES.items()}
"""The kernels by the name of their rule."""
