"""Where each variable lives.

    local            it is used in one region only: a variable of the generated code
    once             uniform, and read in several regions: one variable for the block (or the warp)
    rematerialised   it differs between threads, but is cheap to compute again wherever it is read
    private          it differs between threads: an array with one entry a thread, `variable_of[thread]`

A local array that several regions use is kept likewise, as `array_of[thread]`; if these are the regions of one loop
over warps, as `array_of[..., lane]`, so that the lanes' elements lie side by side.

Rematerialisation: Briggs et al., 1992. A value may be computed again if what it is made of has not changed since.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from numba.core import types

from miniflow.hostcuda.divergence import Divergence, names_in
from miniflow.hostcuda.liveness import Flow
from miniflow.hostcuda.purity import is_pure, is_repeatable
from miniflow.hostcuda.region_tree import (
    Barrier,
    Branch,
    Builder,
    Condition,
    ForEachGroup,
    Loop,
    Node,
    Once,
    Threads,
    lower_divergent_ranges,
    walk,
)
from miniflow.hostcuda.signs import dotted
from miniflow.hostcuda.syntax import (
    BLOCK,
    LANE_READ,
    THREAD,
    WARP,
    Compilation,
    Replace,
    bodies,
    level_of,
    reads,
    sets_names,
    statements,
    target_names,
)


@dataclass
class Storage:
    """The tree of a kernel, and where its variables live.

    Attributes:
        once: variable -> level.
        rematerialised: variable -> the statement that computes it, in the order of the kernel.
        private: variable -> its type.
        in_warp: the private variables and kept arrays that only regions of one warp, one after another, use: they have
            entries for 32 threads.
        kept_arrays: local arrays that are used in several regions.
        conditions: the variables of the compiler's that hold conditions of threads.
        guards: those of them that every region evaluates for itself, since that is as cheap -> the expression.
    """

    nodes: list[Node]
    once: dict[str, int]
    rematerialised: dict[str, ast.Assign] = field(default_factory=dict)
    private: dict[str, types.Type] = field(default_factory=dict)
    in_warp: set[str] = field(default_factory=set)
    kept_arrays: set[str] = field(default_factory=set)
    conditions: dict[str, Condition] = field(default_factory=dict)
    guards: dict[str, ast.expr] = field(default_factory=dict)


def assign_storage(tree: ast.FunctionDef, compilation: Compilation, divergence: Divergence, kinds: Any) -> Storage:
    """Build the tree, and decide where every variable lives.

    A variable that a group cannot keep once after all is one of each thread, and what depends on it is divergent: then
    the tree is built again.

    Args:
        tree: the kernel; loops whose threads count for themselves are rewritten.
        kinds: has `get(variable)`, the type of a variable.
    """
    once: dict[str, int] = {}
    copied: set[str] = set()

    def leave_to_threads(variables: Iterable[str]) -> None:
        for variable in variables:
            divergence.lower(variable, THREAD)
            once.pop(variable, None)

    while True:
        while lower_divergent_ranges(tree.body, divergence, compilation):
            divergence.update()
        builder = Builder(compilation, divergence, dict(once), copied)
        nodes = builder.kernel(tree.body)
        crossing = LiveAcrossBarriers(nodes, divergence, set(builder.conditions))
        for variable in crossing.exchanged & divergence.scope.keys():  # which other threads read
            divergence.lower(variable, THREAD)
        crossed = {v: level for v, level in crossing.levels.items() if v not in builder.conditions}
        uniform = {v: level for v, level in crossed.items() if divergence.scope[v] >= level}
        if not uniform.items() <= once.items():
            once.update(uniform)
            continue
        loops = [node for node, _ in walk(nodes) if isinstance(node, Loop) and not node.divergent]
        counters = {v for loop in loops for v in target_names(loop.statements[0]) if uniform.get(v) != loop.level}
        if not counters <= copied:
            copied |= counters
            leave_to_threads(counters)
            continue
        failed = [v for v in uniform if builder.placed[v] < divergence.definitions[v] and v not in copied]
        if not failed:
            storage = Storage(nodes, {v: once[v] for v in uniform}, conditions=builder.conditions)
            divergent = {v: level for v, level in crossed.items() if v not in uniform}
            Rematerialiser(tree, divergence, storage, crossing, kinds).choose(divergent)
            failed = sorted(read_by_groups(nodes) & storage.private.keys())
        if not failed:
            keep_masks_and_arrays(storage, compilation, crossing)
            return storage
        leave_to_threads(failed)


def keep_masks_and_arrays(storage: Storage, compilation: Compilation, crossing: LiveAcrossBarriers) -> None:
    """Add to a storage the masks and local arrays that every thread keeps, and find what needs one warp's entries."""
    nodes = storage.nodes
    for variable in sorted(masks_to_store(nodes, storage)):
        storage.private[variable] = types.boolean
    local = {v for v, array in compilation.arrays.items() if array.kind == "local"}
    storage.kept_arrays = {v for v, n in count_uses(nodes, local, Threads).items() if n > 1}
    if not compilation.checked:
        storage.in_warp = {v for v in storage.private if crossing.levels.get(v) == WARP}
        uses = count_uses(nodes, storage.kept_arrays, Threads | ForEachGroup, BLOCK)
        storage.in_warp |= {v for v, n in uses.items() if n == 1}


def masks_to_store(nodes: list[Node], storage: Storage) -> set[str]:
    """The masks that are kept in memory: those that are no guards, and those by which a whole group decides."""
    masks = set()
    for node, _ in walk(nodes):
        if node.mask and (node.mask not in storage.guards or isinstance(node, Barrier)):
            masks.add(node.mask)
        if isinstance(node, Branch) and node.divergent and may_not_end(node):
            masks.add(node.test.id)
    return masks | {storage.conditions[v].negates for v in masks} - {""}


def may_not_end(branch: Branch) -> bool:
    """Whether a branch that no thread takes may not be entered: it holds a while loop."""
    return isinstance(branch, Loop) or any(
        isinstance(node, Loop) and isinstance(node.statements[0], ast.While) for node, _ in walk(branch.body)
    )


def read_by_groups(nodes: list[Node]) -> set[str]:
    """The variables of conditions that a warp or a block decides as a whole, and of what it sets."""
    variables: set[str] = set()
    for node, _ in walk(nodes):
        if isinstance(node, Branch) and not node.divergent:
            variables |= set(reads(node.test))
        elif isinstance(node, Once):
            variables |= Flow(node.statements).exposed
    return variables


class LiveAcrossBarriers:
    """The variables that are live across a barrier: whose values cross from one node to another.

    Attributes:
        levels: variable -> the widest level at which it does.
        exchanged: variables that other threads read, in votes and shuffles.
    """

    def __init__(self, nodes: list[Node], divergence: Divergence, conditions: set[str]):
        self.known = divergence.definitions.keys() | conditions
        self.levels: dict[str, int] = {}
        self.exchanged: set[str] = set()
        for node, _ in walk(nodes):
            self._node(node)

    def _add(self, variables: set[str], level: int) -> None:
        for variable in variables & self.known:
            self.levels[variable] = max(self.levels.get(variable, 0), level)

    def _node(self, node: Node) -> None:
        if node.mask:
            self._add({node.mask}, node.level)
        if isinstance(node, Threads | ForEachGroup | Once):
            self._add(Flow(node.statements).exposed, node.level)
        if isinstance(node, Threads):
            exchanged = {v for s in node.statements for v in read_from_others(s)}
            self.exchanged |= exchanged
            self._add(exchanged, node.level)
        elif isinstance(node, Barrier) and node.statements[0].collective:
            voted = node.statements[0].collective[1]
            self.exchanged.add(voted)
            self._add({voted}, node.level)
        elif isinstance(node, Branch):
            self._add(set(reads(node.test)), node.level)
            if isinstance(node, Loop) and not node.divergent:  # its variable is kept once, whoever reads it
                self._add(set(target_names(node.statements[0])), node.level)


def read_from_others(statement: ast.stmt) -> set[str]:
    """The variables that a statement reads of other threads."""
    variables: set[str] = set()
    for n in ast.walk(statement):
        if isinstance(n, ast.Call) and dotted(n.func) in (LANE_READ, "match_any", "match_all"):
            variables |= {a.id for a in n.args[: 1 if dotted(n.func) == LANE_READ else 2]}
    return variables


class Rematerialiser:
    """Divides the variables that are not kept once into rematerialised and private ones."""

    def __init__(
        self, tree: ast.FunctionDef, divergence: Divergence, storage: Storage, crossing: LiveAcrossBarriers, kinds: Any
    ):
        self.divergence, self.storage, self.crossing, self.kinds = divergence, storage, crossing, kinds
        self.definition: dict[str, tuple[ast.stmt, tuple[ast.stmt, ...]]] = {}
        self.tree = tree
        self._locate(tree.body, ())

    def _locate(self, block: list[ast.stmt], loops: tuple[ast.stmt, ...]) -> None:
        for statement in block:
            inner = (*loops, statement) if isinstance(statement, ast.For | ast.While) else loops
            around = inner if isinstance(statement, ast.For) else loops
            for variable in target_names(statement):
                self.definition[variable] = (statement, around)
            for body in bodies(statement):
                self._locate(body, inner)

    def choose(self, variables: dict[str, int]) -> None:
        """Fill in `storage`."""
        computed_again = {v: self._is_rematerialisable(v, level, frozenset()) for v, level in variables.items()}
        conditions = self.storage.conditions
        self.storage.guards = {c: self._expanded(v.test) for c, v in conditions.items() if self._is_guard(v)}
        chosen = self._closure([v for v in variables if computed_again[v]])
        for variable in chosen:
            self.storage.rematerialised[variable] = self.definition[variable][0]
        for variable in variables:
            if not computed_again[variable]:
                self.storage.private[variable] = self.kinds.get(variable)
        for variable in chosen:  # a view of an array is made again of variables that must then be kept
            for operand in reads(self.definition[variable][0]):
                if operand in self.definition and operand not in chosen and operand not in self.storage.once:
                    self.storage.private[operand] = self.kinds.get(operand)

    def _is_guard(self, condition: Condition) -> bool:
        """Whether a condition can be checked wherever the branch's threads run."""
        if condition.changes or not is_repeatable(condition.test, self.divergence.tuples):
            return False
        return all(self._is_unchanged_in(o, condition.statement) for o in set(reads(condition.test)))

    def _is_unchanged_in(self, operand: str, branch: ast.stmt) -> bool:
        """Whether an operand of a condition keeps its value as long as a branch is run."""
        if operand not in self.divergence.definitions:
            return True
        if self.divergence.definitions[operand] != 1:
            return False
        statement, loops = self.definition[operand]
        inside = {id(s) for s in statements([branch])}
        if id(statement) in inside or (loops and id(branch) not in {id(s) for s in statements([loops[-1]])}):
            return False
        if operand in self.storage.once:
            return self.storage.once[operand] >= level_of(branch)
        if operand in self.crossing.exchanged or not sets_names(statement):
            return False
        known = is_repeatable(statement.value, self.divergence.tuples)
        return known and all(self._is_unchanged_in(o, branch) for o in set(reads(statement.value)))

    def _expanded(self, test: ast.expr) -> ast.expr:
        """A condition in terms of what is kept once, parameters and coordinates."""
        inner = {v for v in reads(test) if v in self.divergence.definitions and v not in self.storage.once}
        values = {v: self._expanded(self.definition[v][0].value) for v in inner}
        return Replace(values).visit(copy.deepcopy(test))

    def _closure(self, chosen: list[str]) -> list[str]:
        """These and what they are made of, in the order of the kernel."""
        waiting, closed = list(chosen), set()
        while waiting:
            variable = waiting.pop()
            if variable not in closed:
                closed.add(variable)
                waiting += [o for o in reads(self.definition[variable][0]) if self._is_recomputed(o)]
        return [v for v in self.definition if v in closed]

    def _is_recomputed(self, operand: str) -> bool:
        variable = operand in self.definition and operand not in self.storage.once
        return variable and self._is_rematerialisable(operand, 0, frozenset())

    def _is_rematerialisable(self, variable: str, level: int, waiting: frozenset[str]) -> bool:
        """Whether a variable can be computed again wherever it is read, if it crosses nodes of this level."""
        statement, _ = self.definition[variable]
        if variable in waiting or variable in self.crossing.exchanged:
            return False
        if self.divergence.definitions[variable] != 1 or not sets_names(statement):
            return False
        cheap = is_repeatable(statement.value, self.divergence.tuples)
        view = not cheap and is_view(statement.value, self.divergence.tuples)
        view = view and isinstance(self.kinds.get(variable), types.Array)
        if not cheap and not view:
            return False
        waiting |= {variable}
        return all(self._is_unchanged(o, variable, level, waiting, view) for o in set(reads(statement.value)))

    def _is_unchanged(self, operand: str, variable: str, level: int, waiting: frozenset[str], view: bool) -> bool:
        """Whether an operand has, wherever `variable` is read, the value that it had where `variable` was set."""
        if operand not in self.divergence.definitions:
            return True
        if self.divergence.definitions[operand] != 1:
            return False
        kept = operand in self.storage.once
        if kept and self.storage.once[operand] < level:  # the next warp, or block, has set it since
            return False
        if not kept and not view and not self._is_rematerialisable(operand, level, waiting):
            return False
        loops = self.definition[operand][1]
        return not loops or self._lives_in_one_iteration(variable, loops[-1])

    def _lives_in_one_iteration(self, variable: str, loop: ast.stmt) -> bool:
        """Whether a variable is set and read in the same round of a loop, and nowhere else."""
        inside = Counter(names_in(loop.body))[variable]
        return inside == self.divergence.occurrences[variable] and variable not in Flow(loop.body).exposed


def is_view(node: ast.expr, tuples: set[str]) -> bool:
    """Whether an expression takes a part of an array, and reads no element on the way."""
    if isinstance(node, ast.Subscript):
        return is_pure(node.slice, tuples) and is_view(node.value, tuples)
    if isinstance(node, ast.IfExp):
        return is_pure(node.test, tuples) and is_view(node.body, tuples) and is_view(node.orelse, tuples)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # a method
        return is_view(node.func, tuples) and all(is_pure(a, tuples) for a in node.args)
    return isinstance(node, ast.Attribute) and is_view(node.value, tuples) or is_pure(node, tuples)


def count_uses(nodes: list[Node], arrays: set[str], kinds: Any, level: int | None = None) -> Counter[str]:
    """How many nodes of these kinds, at one level or at any, use an array; each counts once more for each loop."""
    uses: Counter[str] = Counter()
    for node, loops in walk(nodes):
        if isinstance(node, kinds) and level in (None, node.level):
            for variable in arrays.intersection(names_in(node.statements)):
                uses[variable] += 1 + loops
    return uses
