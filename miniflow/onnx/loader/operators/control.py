"""Control flow: If, Loop and Scan run the graphs among their attributes, step by step.

A condition or a number of steps that is known on the host is a Python number, also while an nn.Graph is recorded, which
then holds the branch or the steps that were taken. nn.Graph refuses conditions that are tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Node, as_argument
from miniflow.onnx.loader.registry import Ints, Value, operator
from miniflow.ops.joining import stack, unbind
from miniflow.tensor import Tensor


@operator("If")
def if_else(cond: Value, *, then_branch: Callable, else_branch: Callable) -> tuple[Value, ...]:
    return tuple(then_branch() if cond.item() else else_branch())


@operator("Loop")
def loop(*inputs: Value, body: Callable, node: Node) -> tuple[Value, ...]:
    """While the condition holds, at most M times: the state goes in and out, other outputs are stacked."""
    trips, going, *states = inputs
    steps = count() if trips is None else range(trips.item())
    going, outputs = np.array(True) if going is None else going, []
    for step in steps:
        if not going.item():
            break
        going, *results = body(np.array(step), going, *states)
        states = results[: len(states)]
        outputs.append(results[len(states) :])
    return (*states, *stacked(outputs, len(node.outputs) > len(states)))


@operator("Scan")
def scan(
    *inputs: Value, node: Node, body: Callable, num_scan_inputs: int, scan_input_axes: Ints = None,
    scan_input_directions: Ints = None, scan_output_axes: Ints = None, scan_output_directions: Ints = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Over slices of inputs: the state goes in and out, other outputs are stacked."""
    if node.opset < 9:
        raise OnnxError("got opset 8, in which Scan has batches: convert the model with onnx.version_converter")
    states, scanned = inputs[:-num_scan_inputs], inputs[-num_scan_inputs:]
    zeros = [0] * len(scanned)
    options = zip(scanned, scan_input_axes or zeros, scan_input_directions or zeros, strict=False)
    slices = [slices_of(*option) for option in options]
    outputs = []
    for step_inputs in zip(*slices, strict=True):
        results = body(*states, *step_inputs)
        states = results[: len(states)]
        outputs.append(results[len(states) :])
    return (*states, *stacked(outputs, len(node.outputs) > len(states), scan_output_axes, scan_output_directions))


def slices_of(values: Value, axis: int, backward: int) -> Sequence[Value]:
    """The slices of a value along an axis."""
    slices = unbind(values, axis) if isinstance(values, Tensor) else list(np.moveaxis(values, axis, 0))
    return slices[::-1] if backward else slices


def stacked(steps: list[Sequence[Value]], required: bool, axes: Ints = None, backward: Ints = None) -> Iterable[Value]:
    """The outputs of all steps stacked.

    Raises:
        OnnxError: if there are some outputs, but no step, so that their shapes are unknown.
    """
    if required and not steps:
        raise OnnxError("got no steps, so that the shapes of the outputs are unknown; expected at least one step")
    for i, column in enumerate(zip(*steps, strict=True)):
        axis, column = axes[i] if axes else 0, column[::-1] if backward and backward[i] else column
        devices = [x.device for x in column if isinstance(x, Tensor)]
        yield stack([as_argument(x, "Tensor", devices[0]) for x in column], axis) if devices else np.stack(column, axis)
