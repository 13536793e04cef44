"""Training steps for tests of passes: recorded as a program, rewritten, and run step by step against eager code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.device import of_array
from miniflow.graph.interpret import interpret
from miniflow.graph.ir import BUFFER, OPTIMIZER, PARAMETER, Program, Slot
from miniflow.graph.plan import plan
from miniflow.graph.trace import active, record


class Training:
    """A model, a loss and optimizers, whose step can be recorded or done eagerly.

    Args:
        model: any module.
        loss: (output of the model, last input) -> 0-dim tensor.
        optimizers: made of the model's parameters.
        clip: whether `clip_grad` is called before `step`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable,
        *optimizers: flow.optim.Optimizer,
        clip: bool = False,
    ):
        self.model, self.loss, self.optimizers, self.clip = model, loss, optimizers, clip

    def record(self, *arrays: Any) -> Program:
        """The program of a step on inputs like `arrays`."""
        device = of_array(next(self.model.parameters())._array)
        metas = [(a.shape, a.dtype, device) for a in arrays]
        modules = {module: f"model.{name}".rstrip(".") for name, module in self.model.named_modules()}
        program = record(self._step, metas, list(self._states()), modules=modules)
        program.check()
        return program

    def _states(self):
        names = {p: f"model.{name}" for name, p in self.model.named_parameters()}
        yield from ((name, PARAMETER, p) for p, name in names.items())
        yield from ((f"model.{name}", BUFFER, b) for name, b in self.model.named_buffers())
        for optimizer in self.optimizers:
            optimizer.create_state()
            for p, state in optimizer.state.items():
                tensors = ((key, x) for key, x in state.items() if isinstance(x, flow.Tensor))
                yield from ((f"{names[p]}-{key}", OPTIMIZER, x) for key, x in tensors)

    def _step(self, *inputs: flow.Tensor) -> list[flow.Tensor]:
        outputs = self.forward_backward(*inputs)
        for number, optimizer in enumerate(self.optimizers):
            with active().updating(f"optimizer.{number}"):
                if self.clip:
                    optimizer.clip_grad()
                optimizer.step()
        return outputs

    def forward_backward(self, *inputs: flow.Tensor) -> list[flow.Tensor]:
        """Adds gradients, and returns the model's output and the loss."""
        *given, target = inputs
        y = self.model(*given)
        loss = self.loss(y, target)
        loss.backward()
        return [y, loss]

    def eager(self, *micro_batches: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One update by the mean gradient of micro-batches; their outputs joined."""
        device = next(self.model.parameters()).device
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        found = [self.forward_backward(*[flow.tensor(a, device=device) for a in arrays]) for arrays in micro_batches]
        if len(micro_batches) > 1:
            for p in self.model.parameters():
                if p.grad is not None:
                    p.grad /= len(micro_batches)
        for optimizer in self.optimizers:
            if self.clip:
                optimizer.clip_grad()
            optimizer.step()
        return [joined([y.detach().cpu().numpy() for y in ys]) for ys in zip(*found, strict=True)]

    def replay(self, program: Program, *arrays: Any) -> list[np.ndarray]:
        """One step by a program: the states and the optimizers move on."""
        device = next(self.model.parameters()).device
        outputs, writes = interpret(program, [flow.tensor(a, device=device)._array for a in arrays])
        for state, value in writes.items():
            program.tensors[state].data.copy_(flow.tensor(to_numpy(value), device=device))
        updated = {program.tensors[slot] for slot in writes if slot.kind == PARAMETER}
        for optimizer in self.optimizers:
            params = [p for group in optimizer.param_groups for p in group["params"]]
            optimizer.count_step([p for p in params if p in updated])
        return [to_numpy(y) for y in outputs]

    def values(self) -> dict[str, np.ndarray]:
        """All that a step changes, by name."""
        return {name: tensor.detach().cpu().numpy().copy() for name, _, tensor in self._states()}


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The outputs of micro-steps as one array; that of a single one as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts[0].ndim else np.stack(parts)


def to_numpy(array: Any) -> np.ndarray:
    """A copy on the host."""
    return array.copy() if isinstance(array, np.ndarray) else array.numpy()


def micro_batches(arrays: Sequence[np.ndarray], count: int) -> list[list[np.ndarray]]:
    """Each array cut along dim 0."""
    parts = [np.split(a, count) if a.ndim else [a] * count for a in arrays]
    return [list(part) for part in zip(*parts, strict=True)]


def peak_bytes(program: Program) -> int:
    """The memory for results that a replay needs at once."""
    return plan(program).peak_after


def slot_named(program: Program, name: str) -> Slot:
    """The state of that name."""
    return next(slot for slot in program.states if slot.name == name)
