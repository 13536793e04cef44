"""The step of a graph as a model of ONNX whose parameters are inputs: what onnxruntime runs in place of the replay."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from typing import NamedTuple

from onnx import ModelProto

import miniflow.onnx.exporter.handlers  # noqa: F401  (registers them)
from miniflow.graph.graph import Graph
from miniflow.graph.ir import Program
from miniflow.graph.nested import Tree
from miniflow.graph.recording import Recording
from miniflow.graph.trace import kept_whole
from miniflow.onnx.exporter.recording import Merger
from miniflow.onnx.exporter.writer import HANDLERS, Writer, find
from miniflow.tensor import Tensor

OPSET = 17


class Step(NamedTuple):
    """A model and what to feed it.

    Attributes:
        model: its outputs are those of the step, in order.
        inputs: name -> position of the inputs of the step that it reads.
        states: name -> parameter or buffer that it reads.
    """

    model: ModelProto
    inputs: dict[str, int]
    states: dict[str, Tensor]


def export_step(graph: Graph, tree: Tree, metas: Sequence[tuple]) -> Step:
    """The model of a graph's step, its modules in the modes in which they are.

    Args:
        graph: without an optimizer.
        tree: of its arguments, `(args, kwargs)`.
        metas: shape, dtype and device of the tensors among them.

    Raises:
        OnnxError: for operators that ONNX does not have.
    """
    context = copy_context()
    context.run(kept_whole.set, frozenset(name for name in HANDLERS if find(name, OPSET)))
    level = graph._level
    graph.__dict__["_level"] = -1  # the first recording has been printed
    try:
        recorded = context.run(Recording, graph, tree, metas, ()).program
    finally:
        graph.__dict__["_level"] = level
    return step_of(recorded)


def step_of(recorded: Program) -> Step:
    """The model of a recorded step, one without updates and writes.

    Raises:
        OnnxError: for operators that ONNX does not have.
    """
    merger = Merger([recorded], "")
    program = merger.program()
    weights = [merger.slots[slot] for slot in recorded.states]
    for kind, values in (("input", program.inputs), ("state", weights)):
        for i, value in enumerate(values):
            value.name = f"{kind}.{i}"
            program.constants.pop(value, None)
    program.inputs += weights
    writer = Writer(program, {}, OPSET, [f"output.{i}" for i in range(len(program.outputs))])
    writer.write()
    writer.optimize()
    used = {name for node in writer.nodes for name in node.input}
    writer.inputs = [x for x in writer.inputs if x.name in used]
    inputs = {name: i for i in range(len(recorded.inputs)) if (name := f"input.{i}") in used}
    tensors = [recorded.tensors[slot] for slot in recorded.states]
    return Step(writer.model(), inputs, {x.name: t for x, t in zip(weights, tensors, strict=True) if x.name in used})
