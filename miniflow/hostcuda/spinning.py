"""Loops that wait for another thread by an atomic operation end with an error, where that thread never gets its turn.

    while cuda.atomic.cas(lock, 0, 0, 1) != 0:     ->     rounds = 0
        pass                                              while atomic_cas(lock, 0, 0, 1) != 0:
                                                              rounds += 1
                                                              if rounds > MOST_ROUNDS:
                                                                  raise KernelTimeoutError("...")

On a GPU since Volta, every thread of a running block makes progress. Here the threads of a block run one after another
from barrier to barrier, so that one that waits for a later one would wait for ever.
"""

from __future__ import annotations

import ast
from typing import Any

from miniflow.hostcuda.signs import dotted
from miniflow.hostcuda.syntax import Compilation, assign, has_sync

MOST_ROUNDS = 2**28
"""That many rounds take a second or more."""


class CountRounds(ast.NodeTransformer):
    """Adds counters to the loops of a function that use what atomics return and have no barrier inside."""

    def __init__(self, compilation: Compilation):
        self.compilation = compilation

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        unused = {statement.value for statement in ast.walk(node) if isinstance(statement, ast.Expr)}
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and n not in unused]
        if not any(dotted(call.func).startswith("atomic_") for call in calls) or has_sync(node):
            return node
        rounds, line = self.compilation.fresh("rounds"), node.lineno
        message = (
            f"{self.compilation.location(line)}: a thread has gone {MOST_ROUNDS:,} times round this loop: it seems to "
            "wait for another thread. Threads of a block run one after another here, from barrier to barrier: "
            "a thread can wait for a later one at a barrier only"
        )
        text = f"{rounds} += 1\nif {rounds} > {MOST_ROUNDS}:\n    raise KernelTimeoutError({message!r})"
        count = ast.parse(text).body
        for statement in (n for s in count for n in ast.walk(s) if hasattr(n, "lineno")):
            ast.copy_location(statement, node)
        node.body = count + node.body
        return [assign(rounds, ast.Constant(0), line), node]
