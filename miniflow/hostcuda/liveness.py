"""Which variables a stretch of code reads before it assigns them, and which it surely assigns."""

from __future__ import annotations

import ast

from miniflow.hostcuda.syntax import JUMPS, assigned_in, bodies, expressions, reads, target_names


class Flow:
    """The result for one statement list.

    Attributes:
        exposed: variables whose value from before may be read.
        assigned: variables that may be assigned.
        certain: variables that are assigned on every way through to the end.
    """

    def __init__(self, block: list[ast.stmt]):
        self.exposed: set[str] = set()
        self.assigned = assigned_in(block)
        self.certain = self._block(block, set())

    def _block(self, block: list[ast.stmt], assigned_before: set[str]) -> set[str]:
        """The variables that are surely assigned after a statement list, from those before it."""
        for statement in block:
            inner = bodies(statement)
            for node in expressions(statement) if inner else [statement]:
                self.exposed |= set(reads(node)) - assigned_before
            inside = assigned_before | set(target_names(statement))
            ends = [self._block(body, inside) for body in inner]
            if isinstance(statement, JUMPS):
                assigned_before = assigned_before | self.assigned  # nothing follows
            elif isinstance(statement, ast.If):
                assigned_before = set.intersection(*ends)
            elif not inner:  # the body of a loop may not be run
                assigned_before = inside
        return assigned_before
