"""The checks of lesson 13: NumPy runs the same programs; reads, writes, bytes and overlaps are counted."""

import copy
import graphlib
import itertools

import numpy as np
import pytest

from tutorials import at_most, drawn, programs, same, same_all

CASES = {  # name: (lines, outputs, the groups as names of results, which are the only right ones)
    "a chain": ("b = exp(x); c = relu(b); d = mul(c, w)", "d", "bcd"),
    "a diamond": ("b = exp(x); c = relu(b); d = sigmoid(b); e = add(c, d)", "e", "bcde"),
    "a way around": ("b = exp(x); c = matmul(b, s); d = sigmoid(c); e = mul(b, d)", "e", "b c de"),
    "no read between them": ("b = exp(x); c = relu(x)", "b c", "b c"),
    "two shapes": ("b = exp(x); c = transpose(b); d = relu(c); e = relu(b)", "d e", "be c d"),
    "two reads of one": ("b = mul(x, x); c = add(b, b)", "b c", "bc"),
    "joined at the end": ("b = exp(x); c = exp(w); d = add(b, c); e = mul(d, b)", "c e", "bcde"),
    "a late read": ("b = exp(x); c = mul(x, b); d = add(c, w)", "b d", "bcd"),
}


def text(program, groups):
    """Groups of a program on one line, for messages."""
    return " | ".join(programs.shown([program.instructions[k] for k in group], program.outputs) for group in groups)


def alone(program):
    return [[number] for number in range(len(program.instructions))]


def made(impl, lines, outputs, groups=""):
    program = impl.program(lines, outputs, x=(3, 4), w=(3, 4), s=(4, 4))
    place = {step.output: number for number, step in enumerate(program.instructions)}
    return program, [[place[c] for c in group] for group in groups.split()]


def drawn_program(impl, rng, length=16):
    """A random program of matrices of several shapes, and all its values; what nobody reads is an output."""
    m, n = (int(size) for size in rng.permutation([2, 3, 5, 7])[:2])
    values = {k: drawn(rng, *shape) for k, shape in enumerate([(m, m), (m, n), (n, m), (n, n)])}
    shapes = {f"v{k}": x.shape for k, x in values.items()}
    steps = programs.drawn_steps(rng, values, [*programs.OPS, "add", "mul", "matmul"], length)
    lines = "; ".join(f"v{k} = {op}({', '.join(f'v{r}' for r in reads)})" for op, reads, k in steps)
    read = {r for _, reads, _ in steps for r in reads} - {4 + int(rng.integers(length))}
    outputs = " ".join(f"v{k}" for *_, k in steps if k not in read)
    return impl.program(lines, outputs, **shapes), {f"v{k}": x for k, x in values.items()}


def home_of(program, groups):
    """Name of each result -> the position of its group."""
    return {program.instructions[number].output: g for g, group in enumerate(groups) for number in group}


def ordered(program, groups):
    """The groups in an order in which they can run; None if there is a cycle."""
    home = home_of(program, groups)
    needs = {g: [home[n] for n in crossed(program, group)[0] if n in home] for g, group in enumerate(groups)}
    try:
        return [groups[g] for g in graphlib.TopologicalSorter(needs).static_order()]
    except graphlib.CycleError:
        return None


def mergers(program, groups):
    """Of groups in order, the pairs that could be one loop: both of them, and the better groups."""
    loops = [(group, *crossed(program, group)) for group in groups if pointwise(program, group)]
    for (first, _, writes), (second, reads, _) in itertools.combinations(loops, 2):
        rest = [group for group in groups if group not in (first, second)]
        if set(writes) & set(reads) and (order := ordered(program, [*rest, sorted(first + second)])):
            yield (first, second), order


def merged(program):
    """Groups in order that cannot be merged further."""
    groups = alone(program)
    while found := next(mergers(program, groups), None):
        groups = found[1]
    return groups


def crossed(program, group):
    """The names that a group reads from memory, and those that it writes."""
    steps = [program.instructions[number] for number in sorted(group)]
    others = [step for step in program.instructions if step not in steps]
    own, used = [step.output for step in steps], [name for step in steps for name in step.inputs]
    reads = sorted(set(used) - set(own), key=used.index)
    return reads, [name for name in own if programs.last_read(program, name, [others]) is not None]


def pointwise(program, group):
    return all(program.instructions[number].op in programs.POINTWISE for number in group)


def in_run_order(program, groups, given, what):
    """Whether these are the given groups, each after those whose results it reads."""
    same(sorted(groups or []), sorted(given), what, "these groups, each once")
    home = home_of(program, groups)
    late = [name for at, group in enumerate(groups) for name in crossed(program, group)[0] if home.get(name, -1) > at]
    same(late, [], f"{what}: the values that a group reads before another one makes them", "a group runs as a whole")


@pytest.mark.task("13.1")
def test_order(impl, rng):
    cases = [
        made(impl, "b = exp(x); c = matmul(b, s); d = mul(b, c)", "d", "bd c"),
        made(impl, "b = exp(x); c = relu(b); d = exp(w); e = relu(d)", "c e", "be cd"),  # each group reads the other
    ]
    for k in range(30):
        program, _ = drawn_program(impl, rng)
        groups = [[number] for number in rng.permutation(len(program.instructions)).tolist()]
        for _ in range(k % 4):
            groups[0] = sorted(groups[0] + groups.pop())
        cases.append((program, groups))
    for program, groups in cases:
        given = copy.deepcopy(groups)
        got, what = impl.schedule(program, groups), f"schedule of {text(program, given)}"
        same(groups, given, f"the groups after {what}", "they are the caller's")
        if ordered(program, groups) is None:
            same(got, None, what, "groups are left, and none of them can run")
        else:
            in_run_order(program, got, given, what)


@pytest.mark.task("13.2")
def test_fusion(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "schedule", ordered)
    cases = [made(impl, *case) for case in CASES.values()]
    for program, wanted in [*cases, *((drawn_program(impl, rng)[0], None) for _ in range(25))]:
        got, what = impl.fuse(program), f"fuse of {text(program, alone(program))}"
        same(sorted(sum(got, [])), sum(alone(program), []), f"{what}: the instructions", "each is in one group")
        in_run_order(program, got, got, what)
        for group in got:
            same(group, sorted(group), f"{what}: a group", "the smallest number first")
            same(len(group) == 1 or pointwise(program, group), True, f"{what}: whether {group} are all pointwise")
        for pair, _ in mergers(program, got):
            raise AssertionError(f"{what}: expected as few groups as possible, but {text(program, pair)} can be one")
        if wanted is not None:
            same(sorted(got), sorted(wanted), what, "does a read join them, and does no path lead out and back?")


def examples(impl, rng):
    """Programs, groups and all values: of `CASES`, then random ones, one by one or merged."""
    for case in CASES.values():
        program, groups = made(impl, *case)
        yield program, groups, programs.evaluated(program, {n: drawn(rng, *program.shapes[n]) for n in program.inputs})
    for k in range(20):
        program, values = drawn_program(impl, rng)
        yield program, alone(program) if k % 3 == 0 else merged(program), values


@pytest.mark.task("13.3")
def test_what_a_group_reads_and_writes(impl, rng):
    for program, groups, _ in examples(impl, rng):
        wanted = 0
        for group in groups:
            reads, writes = crossed(program, group)
            what = f"arrays of the group {text(program, [group])} in {text(program, groups)}"
            got = impl.arrays(program, group)
            same(list(got[0]), reads, f"{what}: reads", "not what the group makes itself")
            hint = "what another group reads, or is an output, must be written; nothing else"
            same(list(got[1]), writes, f"{what}: writes", hint)
            wanted += sum(impl.nbytes(program, name) for name in reads + writes)
        what = f"moved for {text(program, groups)} with {program.shapes}"
        same(impl.moved(program, groups), wanted, what, "each group reads for itself")


class Logged:
    """An array of one dimension that writes down each access: (index, "read" or "write", name of the array)."""

    def __init__(self, name, array, log):
        self.name, self.array, self.size, self.log = name, array.ravel().copy(), array.size, log

    def __getitem__(self, index):
        self.log.append((index, "read", self.name))
        return self.array[index]

    def __setitem__(self, index, value):
        self.log.append((index, "write", self.name))
        self.array[index] = value


@pytest.mark.task("13.4")
def test_loop(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "arrays", crossed)
    for program, groups, values in examples(impl, rng):
        for group in [group for group in groups if pointwise(program, group)]:
            (reads, writes), log = crossed(program, group), []
            given = [Logged(n, values[n], log) for n in reads]
            results = [Logged(n, np.full_like(values[n], np.nan), log) for n in writes]
            impl.compiled(impl.source(program, group)).py_func(*given, *results)
            what = f"loop for {text(program, [group])} in {text(program, groups)}"
            for x in results:
                same(x.array, values[x.name].ravel(), f"{what}: {x.name}", rtol=1e-4)
            once = [(i, "read", n) for n in reads for i in range(results[0].size)]
            once += [(i, "write", n) for n in writes for i in range(results[0].size)]
            what = f"{what}: reads of each element, and writes"
            same(sorted(log), sorted(once), what, "read into a variable; write results, once")
            by_index = sorted(log, key=lambda access: access[0])
            right = sorted(by_index, key=lambda access: access[:2])
            same(by_index, right, what, "read all elements at i before you write one")


@pytest.mark.task("13.5")
def test_blocks(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "arrays", crossed)
    for program, groups, _ in examples(impl, rng):
        got, what = impl.blocks(program, groups), f"blocks of {text(program, groups)}"
        steps = [[program.instructions[number] for number in group] for group in groups]
        first = {n: at for at, group in enumerate(groups) for n in crossed(program, group)[1]}
        last = {n: programs.last_read(program, n, steps) for n in first}
        firsts, in_place = [], set()
        for at, group in enumerate(groups):
            reads, writes = crossed(program, group)
            free = [n for n in reads if last.get(n) == at and pointwise(program, group)]
            firsts += [at] * max(len(writes) - len(free), 0)
            in_place.update(itertools.product(free, writes))
        names = [block.names for block in got]
        same(sorted(sum(names, [])), sorted(first), f"{what}: the values", "each written value is in one block")
        shared = {pair for some in names for pair in itertools.pairwise(some)}
        hint = "pointwise results take over operands that are read for the last time"
        same(shared - in_place, set(), f"{what}: values, and others that may not be in the block after them", hint)
        wanted = [impl.Block(impl.nbytes(program, n[0]), first[n[0]], last[n[-1]], n) for n in names]
        same_all(got, wanted, what, "an output is needed to the end")
        found = [block.first for block in got]
        same(found, firsts, f"{what}: `first` of the blocks", "compute in place where you may; no other order")


@pytest.mark.task("13.6")
def test_offsets(impl, rng):
    for count in [1, 2, 2, 3, 3, 3, *rng.integers(4, 12, 60)]:
        first = rng.integers(0, 12, count)
        rows = zip(rng.integers(1, 12, count), first, first + rng.integers(0, 5, count))
        found = [impl.Block(*map(int, row), [f"v{k}"]) for k, row in enumerate(rows)]
        what = f"blocks (bytes, first, last) {[(b.nbytes, b.first, b.last) for b in found]}"
        used, rule = np.zeros((2, 17, sum(b.nbytes for b in found)), bool)  # by position and byte
        for block in sorted(found, key=lambda b: b.nbytes, reverse=True):
            part = rule[block.first : block.last + 1]
            start = next(k for k in range(part.shape[1]) if not part[:, k : k + block.nbytes].any())
            part[:, start : start + block.nbytes] = True
        same(impl.bound(found), int(rule.sum(1).max()), f"bound of {what}", "both ends belong to it")
        got = impl.place(copy.deepcopy(found))
        same(len(got), len(found), f"place of {what}: the number of offsets")
        for block, offset in zip(found, got):
            part = used[block.first : block.last + 1, offset : offset + block.nbytes]
            if offset < 0 or part.any():
                overlap = f"{block} at {offset} has no memory of its own while it is in use; offsets: {got}"
                raise AssertionError(f"place of {what}: {overlap}. Hint: both ends of a block belong to it")
            part[:] = True
        limit = int(np.flatnonzero(rule.any(0))[-1]) + 1
        at_most(impl.arena(found, got), limit, f"bytes of the arena, by place of {what}", "the largest first")
