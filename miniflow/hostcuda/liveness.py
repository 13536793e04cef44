"""Which variables a stretch of code reads before it assigns them, and which it surely assigns."""

from __future__ import annotations

import ast

from miniflow.hostcuda.syntax import Sync, expressions, reads, target_names

LEAVES = (ast.Return, ast.Break, ast.Continue)


class Flow:
    """The result for one statement list.

    Attributes:
        exposed: variables whose value from before may be read.
        assigned: variables that may be assigned.
        certain: variables that are assigned on every way through to the end.
    """

    def __init__(self, block: list[ast.stmt]):
        self.exposed: set[str] = set()
        self.assigned: set[str] = set()
        self.certain = self._block(block, set())

    def _read(self, node: ast.AST, known: set[str]) -> None:
        self.exposed.update(r for r in reads(node) if r not in known)

    def _block(self, block: list[ast.stmt], known: set[str]) -> set[str]:
        known = set(known)
        for statement in block:
            known = self._statement(statement, known)
        return known

    def _statement(self, statement: ast.stmt, known: set[str]) -> set[str]:
        if isinstance(statement, ast.If):
            self._read(statement.test, known)
            ends = [
                self._block(branch, known)
                for branch in (statement.body, statement.orelse)
                if not (branch and isinstance(branch[-1], LEAVES) and not self._scan(branch, known))
            ]
            return set.intersection(*ends) if ends else known
        if isinstance(statement, ast.While):
            self._read(statement.test, known)
            self._block(statement.body, known)
            return self._block(statement.orelse, known)
        if isinstance(statement, ast.For):
            self._read(statement.iter, known)
            targets = set(target_names(statement))
            self.assigned |= targets
            self._block(statement.body, known | targets)
            return self._block(statement.orelse, known)
        if isinstance(statement, Sync):
            if statement.collective is None:
                return known
            _, voted, result = statement.collective
            self._read(ast.Name(voted, ast.Load()), known)
            self.assigned.add(result)
            return known | {result}
        if isinstance(statement, ast.AugAssign):
            self._read(statement.value, known)
            if isinstance(statement.target, ast.Name):
                self._read(ast.Name(statement.target.id, ast.Load()), known)
            else:
                self._read(statement.target, known)
        else:
            for node in expressions(statement):
                self._read(node, known)
        targets = set(target_names(statement))
        self.assigned |= targets
        return known | targets

    def _scan(self, branch: list[ast.stmt], known: set[str]) -> bool:
        """Look through a branch that leaves: what it reads counts, what it assigns does not reach the end."""
        self._block(branch, known)
        return False
