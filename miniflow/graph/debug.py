"""What a graph says when it is compiled: what it prints, its warnings, and why it compiles again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from miniflow.backends.runtime_defaults import user_level
from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, GraphError
from miniflow.graph import describe
from miniflow.graph.compiled import Compiled, kind_of
from miniflow.graph.nested import Tree
from miniflow.tensor import Tensor

CHANGES_LISTED = 4  # of what has changed since the last call
NHWC = ("MINIFLOW_ENABLE_NHWC", "ONEFLOW_ENABLE_NHWC")
OFTEN = 4  # so many compilations for inputs of one kind are warned of


class DebugOutput:
    """The part of `Graph` that prints."""

    def debug(
        self,
        v_level: int = 0,
        *,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        """Print what happens when the graph is compiled.

        Args:
            v_level: -1: nothing. 0: stages with their times, and why a call compiles again. 1: also inputs, outputs and
                parameters of modules, as `build` meets them. 2: also operators. 3: also the programs before and after
                the passes.
            ranks: which ranks print: one, several, None for rank 0, -1 for all.
            max_py_stack_depth: how many lines of the user's code are shown for an operator: where it was called, and
                what led there within `build`.
            only_user_py_stack, op_repr_with_py_stack: of OneFlow, where they show other lines, and no lines. Here
                operators always show the lines of the user's code.

        Raises:
            ArgumentError: for an unknown level, or a depth that is not an integer of at least 0.

        Warns:
            UserWarning: once, for `only_user_py_stack=False` and `op_repr_with_py_stack=True`.
        """
        if v_level not in (-1, 0, 1, 2, 3):
            raise ArgumentError(f"debug: got v_level={v_level!r}; expected -1 (off), 0, 1, 2 or 3")
        if not isinstance(max_py_stack_depth, int) or max_py_stack_depth < 0:
            raise ArgumentError(
                f"debug: got max_py_stack_depth={max_py_stack_depth!r}; expected an integer of at least 0"
            )
        if op_repr_with_py_stack or not only_user_py_stack:
            self._warn(
                "py_stack",
                "op_repr_with_py_stack=True and only_user_py_stack=False have no effect: operators print the lines of "
                "your code that led to them; max_py_stack_depth says how many",
            )
        chosen = [0] if ranks is None else [ranks] if isinstance(ranks, int) else list(ranks)
        shown = 0 in chosen or -1 in chosen
        self._initialised().__dict__.update(_level=v_level if shown else -1, _lines_shown=max_py_stack_depth)

    def _prints(self, level: int) -> bool:
        return level <= self._level

    def _print(self, level: int, text: str) -> None:
        if level <= self._level and text:
            print(text, flush=True)

    def _warn_constant(self, name: str, value: Any, what: str) -> None:
        kind = type(value).__name__
        self._warn(name, f"{name} is of type {kind}, not Tensor, and becomes a constant of the graph: {what}")

    def _warn_of_modes(self, tensors: Sequence[Tensor]) -> None:
        """Warn of what eager code would heed around a call, and a graph does not."""
        if modes.autocast is not None:
            self._warn("autocast", "a graph does not see the autocast around its call: use config.enable_amp(True)")
        if modes.enabled and any(tensor.requires_grad for tensor in tensors):
            self._warn(
                "inputs",
                "an input requires grad, but no gradient flows through a graph to its inputs; pass x.detach(), and for "
                "gradients within build use flow.autograd.grad",
            )

    def _warn_of_options(self, plan: Compiled) -> None:
        """Warn of options that were set and have no effect in this graph."""
        devices = {slot.device.type for instruction in plan.program.instructions for slot in instruction.outputs}
        if self.config.cuda_graph and "cuda" not in devices:
            self._warn(
                "cuda_graph",
                "GraphConfig.enable_cuda_graph has no effect: the graph works on the CPU; move its modules and inputs "
                "to a cuda device",
            )
        if asked := [name for name in NHWC if os.environ.get(name, "0") not in ("", "0")]:
            self._warn(
                "nhwc",
                f"{asked[0]} has no effect: images stay channels first; docs/DIFFERENCES.md says what another order "
                "saves",
            )
        if plan.recording.program.is_global:
            return
        instead = "tensors of the graph are local; use module.to_global(placement, sbp)"
        if self.config.zero is not None:
            self._warn("zero", f"GraphConfig.enable_zero has no effect: {instead}")
        if any(options.stage_id is not None for options in self._options.values()):
            self._warn("set_stage", f"set_stage has no effect: {instead}")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(f"{self.name}: {text}.", stacklevel=user_level())

    def _shallow_repr(self) -> str:
        return describe.shallow(self)

    def _report(self, plan: Compiled) -> None:
        recorded = plan.recording.program
        counts = f"{len(recorded.instructions)} operators over {len(recorded.states)} states"
        self._print(1, f"{self._shallow_repr()} recorded {counts}.")
        if self._prints(2):
            self._print(2, "\n".join(describe.operator_lines(recorded, None, self._lines_shown)))
        if self._prints(3):
            self._print(3, "\n".join([str(recorded), *map(str, plan.report), str(plan.program)]))

    def _explain(self, tree: Tree, metas: Sequence[tuple]) -> str:
        """Say why a call compiles again; an error if other inputs are not allowed.

        What has changed is told from the last plan for inputs of this kind, or if there is none, from the last plan.
        """
        reason = self._forgotten
        if self._last is not None:
            alike = (plan for plan in reversed(self._plans) if plan.kind == kind_of(tree, metas))
            reason = self._reason(next(alike, self._last), tree, metas)
        if reason:
            self._print(0, f"{self._shallow_repr()} compiles again, since something has changed: {reason}.")
        self.__dict__["_forgotten"] = ""
        return reason

    def _count_compilation(self, plan: Compiled, reason: str) -> None:
        """Warn when inputs of one kind are compiled for again and again."""
        self._compilations[plan.kind] += 1
        if plan.kind in self._dropped:
            inputs = ", ".join(map(describe.tensor_text, plan.metas))
            self._warn(
                "dropped",
                f"compiled again for inputs {inputs}, whose plan was dropped: the plans of {self._kinds_kept} kinds of "
                "inputs are kept, those used last; pad inputs, or sort them into buckets, so that they have fewer "
                "shapes, pass numbers that change as tensors, or let with_dynamic_input_shape(size=...) keep more",
            )
        elif self._compilations[plan.kind] == OFTEN and reason:
            self._warn(
                "compilations",
                f"compiled for the {OFTEN}th time for inputs of one kind, which takes long; the last time, {reason}: "
                "let it stay the same, or if it has to change in every step, let it be a tensor that build takes",
            )

    def _reason(self, plan: Compiled, tree: Tree, metas: Sequence[tuple]) -> str:
        """Why a plan does not fit."""
        changed = plan.guards.differences()
        if tree != plan.tree:
            what = "the structure of the arguments, or a constant among them"
            self._refuse_if_static(f"What differs is {what}.")
            changed = [what, *changed]
        elif list(metas) != plan.metas:
            index = next(i for i, meta in enumerate(metas) if meta != plan.metas[i])
            was, now = describe.tensor_text(plan.metas[index]), describe.tensor_text(metas[index])
            self._refuse_if_static(
                f"The excepted tensor meta is: {was}, but the actual tensor meta is: {now}. The input index is "
                f"{index}. Use config.static_shapes(False), or decorate __init__ with "
                "@nn.Graph.with_dynamic_input_shape(), to compile a plan for each."
            )
            changed = [f"input {index} is {now}, was {was}", *changed]
        if len(changed) > CHANGES_LISTED:
            changed[CHANGES_LISTED:] = [f"and {len(changed) - CHANGES_LISTED} more"]
        return "; ".join(changed)

    def _refuse_if_static(self, difference: str) -> None:
        if self.config.is_static:
            raise GraphError(
                f"{self.name}: nn.Graph ONLY accepts static inputs tensor meta, please check whether your input tensor "
                f"meta each step is the same as the input of first call graph. {difference}"
            )


def warn_of_sharing(what: str, more: str) -> None:
    """Warn of a method of OneFlow's graphs that has no effect here."""
    warnings.warn(
        f"nn.Graph: {what} has no effect: graphs over one module share its parameters{more}.", stacklevel=user_level()
    )
