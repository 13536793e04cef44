"""Methods of OneFlow's graphs whose work is done in another way here; each says which."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from miniflow.errors import GraphError

if TYPE_CHECKING:
    from miniflow.graph.compiled import Compiled
    from miniflow.graph.graph import Graph


NHWC = ("MINIFLOW_ENABLE_NHWC", "ONEFLOW_ENABLE_NHWC")


class DoneElsewhere:
    """The part of `Graph` that knows what OneFlow's has besides."""

    def runtime_state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        """OneFlow's state of a compiled graph; here `flow.save` writes that to files.

        Raises:
            GraphError: always.
        """
        raise GraphError(
            "runtime_state_dict: use flow.save(graph, folder), which writes the compiled graph with its weights"
        )

    def load_runtime_state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        """OneFlow's way to take over a compiled graph; here `nn.Graph.load` reads it from files.

        Raises:
            GraphError: always.
        """
        raise GraphError("load_runtime_state_dict: use nn.Graph.load(folder), which reads what flow.save wrote")

    def share_from(self, shared_graph: Any) -> None:
        """OneFlow's way to let graphs share weights; here they do so by having the same module."""
        _no_effect("share_from(graph)", "graphs over one module share its parameters; give both the same module")

    def enable_shared(self, mode: bool = True) -> None:
        """OneFlow's switch for `share_from`."""
        _no_effect("enable_shared()", "graphs over one module share its parameters")


def warn_of_options(graph: Graph, plan: Compiled) -> None:
    """Warn of options that were set and have no effect in this graph."""
    places = {slot.device.type for instruction in plan.program.instructions for slot in instruction.outputs}
    if graph.config.cuda_graph and "cuda" not in places:
        graph._warn(
            "cuda_graph",
            "GraphConfig.enable_cuda_graph has no effect: the graph works on the CPU; move its modules and inputs to a "
            "cuda device",
        )
    if asked := [name for name in NHWC if os.environ.get(name, "0") not in ("", "0")]:
        graph._warn(
            "nhwc",
            f"{asked[0]} has no effect: images stay channels first; docs/DIFFERENCES.md says what another order saves",
        )
    if plan.recording.program.is_global:
        return
    instead = "tensors of the graph are local; use module.to_global(placement, sbp)"
    if graph.config.zero is not None:
        graph._warn("zero", f"GraphConfig.enable_zero has no effect: {instead}")
    if any(options.stage_id is not None for options in graph._options.values()):
        graph._warn("set_stage", f"set_stage has no effect: {instead}")


def _no_effect(what: str, instead: str) -> None:
    warnings.warn(f"nn.Graph: {what} has no effect: {instead}.", stacklevel=3)
