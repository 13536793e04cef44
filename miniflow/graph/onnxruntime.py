"""Run the calls of a graph in onnxruntime: `config.enable_xla_jit()`, `enable_tensorrt()`, `enable_openvino()`.

The step is recorded a second time, for the exporter to ONNX, and its model given to a session with the provider of
that name. Parameters and buffers are inputs of the model and looked up at each call, so changed weights count; for the
same reason an engine can fold no batch norm into a convolution. What a model cannot do is replayed as usual: updates,
writes to buffers, random numbers, other devices. Numbers differ from those of the replay by rounding.

`graph.ir` shows the program of the usual replay. A saved graph does not keep the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from miniflow.backends.memory import row_major
from miniflow.errors import GraphError, OnnxError
from miniflow.graph.ir import Program

if TYPE_CHECKING:
    from miniflow.graph.compiled import Compiled

PROVIDERS = {  # engine of `config` -> onnxruntime's name of what runs it
    "xla_jit": "CPUExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
OPTIONS = {"OpenVINOExecutionProvider": {"device_type": "CPU", "precision": "FP32"}}


class OnnxReplay:
    """Runs a graph's step in onnxruntime; called as a `replay.Replay`.

    Args:
        program: as recorded.
        step: its model, an `onnx.exporter.step.Step`.
        provider: of onnxruntime.

    Attributes:
        session: onnxruntime's.

    Raises:
        OnnxError: if the provider cannot run it.
        ImportError: without onnxruntime.
    """

    def __init__(self, program: Program, step: Any, provider: str):
        ort = import_module("onnxruntime")
        if provider not in ort.get_available_providers():
            raise OnnxError(f"the installed onnxruntime has no {provider}")
        self.program, self.inputs, self.states = program, step.inputs, step.states
        options = ort.SessionOptions()
        options.log_severity_level = 4  # errors are raised
        providers = [(name, OPTIONS.get(name, {})) for name in dict.fromkeys((provider, "CPUExecutionProvider"))]
        try:
            self.session = ort.InferenceSession(step.model.SerializeToString(), options, providers)
        except Exception as error:  # onnxruntime's have no common class
            raise OnnxError(f"onnxruntime refuses the model: {error}") from error
        if provider not in self.session.get_providers():
            raise OnnxError(f"onnxruntime cannot load its {provider}")

    def __call__(self, inputs: Sequence[np.ndarray], drawn: Any = None) -> list[np.ndarray]:
        """The outputs of one call.

        Args:
            inputs: arrays of the shapes and dtypes of the program's inputs.
            drawn: of `replay.Replay`; there are no random draws.

        Raises:
            GraphError: for what onnxruntime refuses, such as an index out of range.
        """
        arrays = {name: row_major(inputs[i]) for name, i in self.inputs.items()}
        arrays |= {name: row_major(tensor._array) for name, tensor in self.states.items()}
        try:
            return self.session.run(None, arrays)
        except Exception as error:  # onnxruntime's have no common class
            raise GraphError(f"{self.program.name}: onnxruntime: {error}") from error

    @property
    def plan(self) -> NoReturn:
        """Of memory: onnxruntime has its own.

        Raises:
            GraphError: always.
        """
        raise GraphError(f"{self.program.name}: onnxruntime runs the graph, and plans its memory; expected the replay")


def why_not(program: Program, config: Any) -> str | None:
    """What keeps a recorded step from onnxruntime; None if nothing does."""
    slots = [*program.inputs, *program.states, *program.outputs]
    results = [slot for instruction in program.instructions for slot in instruction.outputs]
    reasons = {
        "it trains": config.training,
        "its tensors are global": program.is_global,
        "its tensors are not all on the CPU": any(slot.device.type != "cpu" for slot in slots),
        "a call changes buffers: call eval() of its modules": bool(program.writes),
        "it draws random numbers": bool(program.draws.generators),
        "build writes to its inputs": bool(program.late_reads),
        "enable_amp holds for the replay only": config.amp_dtype is not None,
        "NumPy has no bfloat16": any(slot.dtype.kind == "V" for slot in slots),
        "it returns no tensors": not program.outputs,
        "onnxruntime reduces tensors without elements to other numbers": not all(x.size for x in slots + results),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def replay_of(plan: Compiled) -> OnnxReplay | None:
    """What runs a plan in the engine that its graph's config names; None, after one warning, if that cannot be."""
    engine, program = plan.config.engine, plan.recording.program
    try:
        return engine_of(program, plan.config, engine, "export_step", plan.graph, plan.tree, plan.metas)
    except OnnxError as error:
        reason = error.message
    plan.graph._warn(f"enable_{engine}", f"enable_{engine} has no effect, the graph is replayed as usual: {reason}")
    return None


def engine_of(program: Program, config: Any, engine: str, export: str, *args: Any) -> OnnxReplay:
    """What runs a recorded program in an engine of `PROVIDERS`.

    Args:
        export: the function of `onnx.exporter.step` that makes the model of `args`.

    Raises:
        OnnxError: with the reason, if that cannot be.
    """
    if reason := why_not(program, config):
        raise OnnxError(reason)
    try:
        step = getattr(import_module("miniflow.onnx.exporter.step"), export)(*args)
        return OnnxReplay(program, step, PROVIDERS[engine])
    except ImportError as error:
        raise OnnxError(f"{error.name} is not installed") from error
