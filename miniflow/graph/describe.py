"""How graphs print: OneFlow's lines for graphs, modules, tensors and operators.

    (GRAPH:Net_0:Net): (
      (CONFIG:config:GraphConfig(training=False, ))
      (INPUT:_Net_0_input.0.0_2:tensor(..., size=(8, 4), dtype=miniflow.float32))
      (MODULE:model:Linear(in_features=4, out_features=3, bias=True)): (
        (INPUT:_model_input.0.0_2:tensor(..., is_lazy='True', size=(8, 4), dtype=miniflow.float32))
        (PARAMETER:model.weight:tensor(..., size=(3, 4), dtype=miniflow.float32, requires_grad=True)): ()
        (PARAMETER:model.bias:tensor(..., size=(3,), dtype=miniflow.float32, requires_grad=True)): ()
        (GraphModule:model()): (
          (OPERATOR: model-linear-0(...) -> (...), placement=(miniflow.placement(type="cpu", ranks=[0])))
        )
        (OUTPUT:_model_output.0.0_2:tensor(..., is_lazy='True', size=(8, 3), dtype=miniflow.float32))
      )
      (OUTPUT:_Net_0_output.0.0_2:tensor(..., size=(8, 3), dtype=miniflow.float32))
    )

The lines of inputs, operators and outputs are there once the graph is compiled. The operators are those that forward
recorded, before any pass; `graph.ir` is what runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.device import place_of
from miniflow.dtype import dtype
from miniflow.graph.ir import FORWARD, Instruction, Program, Slot
from miniflow.graph.nested import TENSOR, Tree, named_leaves
from miniflow.nn.modules.module import Module
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph


def meta(array: Any) -> tuple:
    """Shape, dtype and device of an array; of a global one its placement and SBP."""
    return array.shape, array.dtype, place_of(array)


def strides(array: Any) -> tuple[int, ...]:
    """Steps in bytes between neighbours along each dimension of an array."""
    return array.strides if isinstance(array, np.ndarray) else array.layout.strides


def tensor_text(value: tuple, is_lazy: bool = False, requires_grad: bool = False) -> str:
    """`tensor(..., size=(2, 3), dtype=miniflow.float32)`, with the device if that is not the CPU."""
    shape, numpy_dtype, device = value
    parts = ["..."]
    if device.is_global:
        parts.append(f"placement={device.placement}, sbp={device.sbp}")
    elif device.type != "cpu":
        parts.append(f"device='{device}'")
    if is_lazy:
        parts.append("is_lazy='True'")
    parts += [f"size={tuple(shape)}", f"dtype={dtype.from_numpy(np.dtype(numpy_dtype))}"]
    if requires_grad:
        parts.append("requires_grad=True")
    return f"tensor({', '.join(parts)})"


def state_text(kind: str, name: str, tensor: Tensor) -> str:
    """`(PARAMETER:model.weight:tensor(...)): ()`."""
    return f"({kind}:{name}:{tensor_text(meta(tensor._array), requires_grad=tensor.requires_grad)}): ()"


def io_lines(kind: str, prefix: str, tree: Tree, metas: Sequence[tuple], is_lazy: bool = False) -> list[str]:
    """`(INPUT:_Net_0_input.0.0_2:tensor(...))` for every leaf in a tree; other values print as they are."""
    rest = iter(metas)
    lines = []
    for name, leaf in named_leaves(tree, prefix):
        text = tensor_text(next(rest), is_lazy) if leaf.kind == TENSOR else repr(leaf.constant)
        lines.append(f"({kind}:{name}:{text})")
    return lines


def shallow(graph: Graph) -> str:
    """`(GRAPH:Net_0:Net)`."""
    return f"(GRAPH:{graph.name}:{type(graph).__name__})"


def graph_text(graph: Graph) -> str:
    """What `repr(graph)` is."""
    recording = graph._last and graph._last.recording
    lines = [repr(graph.config)]
    if recording is not None:
        lines += recording.input_lines
    lines += [module_text(graph, module, name) for name, module in graph._blocks.items()]
    if recording is not None:
        lines += operator_lines(recording.program, "", graph._lines_shown)
        lines += recording.output_lines
    return _block(shallow(graph), lines)


def module_text(graph: Graph, module: Module, name: str) -> str:
    """`(MODULE:model:Linear(...)): (...)` with everything below."""
    recording = graph._last and graph._last.recording
    calls = {} if recording is None else recording.calls
    inputs, outputs = calls.get(module, ((), ()))
    options = graph._options.get(module)
    lines = [repr(options)] if options is not None and options.options() else []
    lines += inputs
    lines += [module_text(graph, child, f"{name}.{key}") for key, child in module._modules.items() if child is not None]
    lines += parameter_lines(module, name)
    lines += [state_text("BUFFER", f"{name}.{key}", b) for key, b in module._buffers.items() if b is not None]
    if recording is not None:
        operators = operator_lines(recording.program, recording.names.get(module, name), graph._lines_shown)
        lines += [_block(f"(GraphModule:{name.rpartition('.')[2]}())", operators)] if operators else []
    lines += outputs
    return _block(module_head(module, name), lines)


def module_head(module: Module, name: str) -> str:
    """`(MODULE:model:Linear(...))`."""
    return f"(MODULE:{name}:{module._get_name()}({module.extra_repr()}))"


def parameter_lines(module: Module, name: str) -> list[str]:
    """A line for each parameter of a module."""
    return [state_text("PARAMETER", f"{name}.{key}", p) for key, p in module._parameters.items() if p is not None]


def _block(head: str, lines: list[str]) -> str:
    if not lines:
        return f"{head}: ()"
    inner = "\n".join(lines).replace("\n", "\n  ")
    return f"{head}: (\n  {inner}\n)"


def operator_lines(program: Program, scope: str | None, lines: int = 2) -> list[str]:
    """The operators that the forward of a module recorded, not those of modules below it; with None, all."""
    return [
        operator_text(instruction, label, labels, lines)
        for instruction, label, labels in _labelled(program)
        if scope is None or (instruction.scope == scope and instruction.phase == FORWARD)
    ]


def _labelled(program: Program) -> Iterator[tuple[Instruction, str, dict[Slot, str]]]:
    labels = {slot: slot.name or slot.kind for slot in (*program.inputs, *program.states, *program.constants)}
    for number, instruction in enumerate(program.instructions):
        label = f"{instruction.scope}-{instruction.op.function_name}-{number}".removeprefix("-")
        labels.update({slot: f"{label}/{name}_0" for slot, name in _outputs(instruction)})
        yield instruction, label, labels


def _outputs(instruction: Instruction) -> Iterator[tuple[Slot, str]]:
    return zip(instruction.outputs, instruction.op.outputs, strict=False)


def operator_text(instruction: Instruction, label: str, labels: dict[Slot, str], lines: int = 2) -> str:
    """`(OPERATOR: model.fc-linear-0(...) -> (...), placement=(...))`, and lines of the user's code."""
    inputs = [f"{labels[x]}:{_slot_text(x)}" if isinstance(x, Slot) else repr(x) for x in instruction.inputs]
    outputs = [f"{labels.get(y, 'out')}:{_slot_text(y)}" for y in instruction.outputs]
    device = instruction.outputs[0].device
    ranks = device.placement if device.is_global else f'miniflow.placement(type="{device.type}", ranks=[0])'
    where = f"placement=({ranks})"
    code_lines = [instruction.location, *instruction.callers][:lines] if instruction.location else []
    location = f", location=({' < '.join(code_lines)})" if code_lines else ""
    return f"(OPERATOR: {label}({', '.join(inputs)}) -> ({', '.join(outputs)}), {where}{location})"


def _slot_text(slot: Slot) -> str:
    sbp = ", ".join(map(str, getattr(slot.device, "sbp", "B")))
    return f"(sbp=({sbp}), size={slot.shape}, dtype=({dtype.from_numpy(slot.dtype)}))"
