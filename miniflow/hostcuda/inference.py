"""Asks numba for the types of a function's variables, without compiling it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from numba.core import types
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import DeadBranchPrune


@register_pass(mutates_CFG=False, analysis_only=True)
class KeepTypes(FunctionPass):
    """Ends the pipeline."""

    _name = "keep_types"

    def __init__(self):
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Hand out the types instead of code."""
        state.cr = SimpleNamespace(typemap=dict(state.typemap))
        return False


class TypesOnly(CompilerBase):
    """numba's pipeline up to type inference."""

    def define_pipelines(self) -> list[PassManager]:
        """One pipeline: the untyped passes, type inference, and out."""
        untyped = DefaultPassBuilder.define_untyped_pipeline(self.state)
        manager = PassManager("types only")
        # a branch that is never taken counts as well: what it assigns is read where it cannot run either
        manager.passes.extend(p for p in untyped.passes if p[0] is not DeadBranchPrune)
        manager.add_pass(NopythonTypeInference, "nopython frontend")
        manager.add_pass(KeepTypes, "keep the types")
        manager.finalize()
        return [manager]


def unified(kinds: list[types.Type]) -> types.Type | None:
    """The type that holds all values of a variable; None if there is none, or no type is given."""
    return cpu_target.typing_context.unify_types(*kinds) if len(kinds) > 1 else next(iter(kinds), None)


def infer(function: Callable, argument_types: tuple[types.Type, ...]) -> dict[str, list[types.Type]]:
    """The types of every variable: one for each of its versions, in static single assignment.

    Raises:
        numba.errors.TypingError: if the function does not type.
    """
    flags = Flags()
    flags.nrt = True
    flags.error_model = "numpy"
    context = cpu_target.typing_context
    target = cpu_target.target_context
    context.refresh()
    target.refresh()
    pipeline = TypesOnly(context, target, None, argument_types, None, flags, {})
    versions: dict[str, list[types.Type]] = {}
    for version, kind in pipeline.compile_extra(function).typemap.items():
        if version.startswith("arg.") and not version[4:].isdigit():  # numba's name of a parameter
            continue
        versions.setdefault(version.split(".")[0], []).append(types.unliteral(kind))
    return versions
