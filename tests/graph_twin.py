"""Every function that is tested eagerly has a graph twin: the same function recorded, rewritten, and replayed.

Used by `checks.check_op` for ops and by `graph/test_equality.py` for modules and optimizers, so that whatever is tested
eagerly is tested as a graph too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from compare import as_array, assert_same
from layouts import placed

import miniflow as flow
from miniflow.autograd import grad as gradients_of
from miniflow.graph.interpret import interpret
from miniflow.graph.trace import record
from miniflow.ops.generator import default_generator
from miniflow.tensor import Tensor


def check_twin(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    checked: Sequence[int],
    cotangents_of: Callable[[Sequence[Tensor]], list[Tensor]],
) -> None:
    """Values and gradients of `function`, recorded on symbolic tensors and interpreted, are bit for bit the eager ones.

    Args:
        function: takes tensors and what else is in `inputs`.
        inputs: NumPy arrays and other things.
        checked: the positions of the arrays whose gradients are compared.
        cotangents_of: makes cotangents for the outputs that require grad; they enter the graph as captured tensors.
    """
    where = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray)]
    device = flow.get_default_device()
    arrays = [placed(np.ascontiguousarray(inputs[i]).reshape(inputs[i].shape), device) for i in where]
    eager = [Tensor._wrap(array.copy()) for array in arrays]
    state = default_generator.get_state()
    expected = with_gradients(function, inputs, where, checked, cotangents_of, eager)
    default_generator.set_state(state)
    program = record(
        lambda *tensors: with_gradients(function, inputs, where, checked, cotangents_of, tensors),
        [(array.shape, array.dtype, device) for array in arrays],
    )
    program.check()
    outputs, written = interpret(program, arrays)
    assert not written, f"the function writes to {[slot.name for slot in written]}"
    assert len(outputs) == len(expected)
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        assert_same(Tensor._wrap(got), as_array(want.detach()), what=f"result {i} of the graph twin")


def with_gradients(function, inputs, where, checked, cotangents_of, tensors) -> list[Tensor]:
    """The results of `function` and the gradients of the inputs at `checked`, those that exist."""
    filled = list(inputs)
    for position, tensor in zip(where, tensors, strict=True):
        filled[position] = tensor.requires_grad_() if position in checked else tensor
    result = function(*filled)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    differentiable = [y for y in outputs if isinstance(y, Tensor) and y.requires_grad]
    if not differentiable:
        return outputs
    sources = [filled[i] for i in checked]
    found = gradients_of(differentiable, sources, cotangents_of(differentiable), allow_unused=True)
    return outputs + [g for g in found if g is not None]
