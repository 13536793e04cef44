"""The checks of lesson 13: NumPy runs the same programs; reads, writes, bytes and overlaps are counted."""

import copy
import math

import numpy as np
import pytest

from tutorials import drawn, programs, same

POINTWISE = programs.POINTWISE
CASES = {  # name: (lines, outputs, the groups as names of results, which are the only right ones)
    "a chain": ("b = exp(x); c = relu(b); d = mul(c, w)", "d", "bcd"),
    "a matrix product between": ("b = exp(x); c = matmul(b, s); d = relu(c)", "d", "b c d"),
    "a diamond": ("b = exp(x); c = relu(b); d = sigmoid(b); e = add(c, d)", "e", "bcde"),
    "a way around": ("b = exp(x); c = matmul(b, s); d = sigmoid(c); e = mul(b, d)", "e", "b c de"),
    "a longer way": ("b = exp(x); c = relu(b); d = matmul(b, s); e = mul(c, d)", "e", "bc d e"),
    "no read between them": ("b = exp(x); c = relu(x)", "b c", "b c"),
    "two shapes": ("b = exp(x); c = transpose(b); d = relu(c); e = relu(b)", "d e", "be c d"),
    "two reads of one": ("b = mul(x, x); c = add(b, b)", "b c", "bc"),
    "joined at the end": ("b = exp(x); c = exp(w); d = add(b, c); e = mul(d, b)", "c e", "bcde"),
    "a late read": ("b = exp(x); c = mul(x, b); d = add(c, w)", "b d", "bcd"),
    "nothing to do": ("b = transpose(x)", "b", "b"),
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


def drawn_program(impl, rng, length=24):
    """A random program of matrices of several shapes without dead code, and arrays for its inputs."""
    m, n = (int(size) for size in rng.permutation([2, 3, 5, 7])[:2])
    inputs = [drawn(rng, *shape) for shape in ((m, m), (m, n), (n, m), (n, n))]
    steps = programs.drawn_steps(rng, dict(enumerate(inputs)), [*programs.OPS, "add", "mul", "matmul"], length)
    needed = {length + 3, *rng.integers(4, length + 4, 2).tolist()}
    outputs, lines = " ".join(f"v{n}" for n in sorted(needed)), []
    for op, reads, number in reversed(steps):
        if number in needed:
            needed.update(reads)
            lines.insert(0, f"v{number} = {op}({', '.join(f'v{n}' for n in reads)})")
    arrays = {f"v{n}": x for n, x in enumerate(inputs)}
    return impl.program("\n".join(lines), outputs, **{name: x.shape for name, x in arrays.items()}), arrays


def home_of(program, groups):
    """Name of each result -> the position of its group."""
    return {program.instructions[number].output: g for g, group in enumerate(groups) for number in group}


def ordered(program, groups):
    """An order of groups, by how many have to run before each; None if there is a cycle."""
    home = home_of(program, groups)
    before = np.zeros((len(groups), len(groups)), bool)
    for g, group in enumerate(groups):
        before[[home[name] for name in crossed(program, group)[0] if name in home], g] = True
    for _ in groups:
        before |= (before.astype(int) @ before) > 0
    return None if before.diagonal().any() else [groups[g] for g in np.argsort(before.sum(0), kind="stable")]


def mergers(program, groups):
    """The pairs of groups that could be one loop: both of them, and the better groups."""
    home, ops = home_of(program, groups), {step.output: step.op for step in program.instructions}
    for step, name in [(reader, name) for reader in program.instructions for name in reader.inputs]:
        if {step.op, ops.get(name)} <= set(POINTWISE) and home[name] != home[step.output]:
            pair = groups[home[name]], groups[home[step.output]]
            if order := ordered(program, [*(g for g in groups if g not in pair), sorted(pair[0] + pair[1])]):
                yield pair, order


def merged(program):
    """Groups that cannot be merged further."""
    groups = alone(program)
    while found := next(mergers(program, groups), None):
        groups = found[1]
    return ordered(program, groups)


def crossed(program, group):
    """The names that a group reads from memory, and those that it writes."""
    steps = [program.instructions[number] for number in sorted(group)]
    others = [step for step in program.instructions if step not in steps]
    own, used = [step.output for step in steps], [name for step in steps for name in step.inputs]
    reads = sorted(set(used) - set(own), key=used.index)
    return reads, [name for name in own if programs.last_read(program, name, [others]) is not None]


def pointwise(program, group):
    return program.instructions[group[0]].op in POINTWISE


def size_of(program, name):
    return 4 * int(np.prod(program.shapes[name]))


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
        made(impl, "b = exp(x); c = relu(b); d = relu(c); e = relu(d)", "e", "b ce d"),
        made(impl, "b = exp(x); c = matmul(b, s); d = matmul(c, s); e = mul(b, d)", "e", "c be d"),
    ]
    for k in range(30):
        program, _ = drawn_program(impl, rng, 16)
        groups = [[number] for number in rng.permutation(len(program.instructions)).tolist()]
        for _ in range(min(k % 4, len(groups) - 1)):
            groups[0] = sorted(groups[0] + groups.pop())
        cases.append((program, groups))
    for k, (program, groups) in enumerate(cases):
        given = copy.deepcopy(groups)
        got, what = impl.schedule(program, groups), f"schedule of {text(program, given)}"
        same(groups, given, f"the groups after {what}", "they are the caller's")
        if k < 4 or ordered(program, groups) is None:
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
            ops = {program.instructions[number].op for number in group}
            same(len(group) == 1 or ops <= set(POINTWISE), True, f"{what}: whether all ops of {group} are pointwise")
        for pair, _ in mergers(program, got):
            raise AssertionError(f"{what}: expected as few groups as possible, but {text(program, pair)} can be one")
        if wanted is not None:
            same(sorted(got), sorted(wanted), what, "does a read join them, and does no path lead out and back?")


@pytest.fixture
def given(impl, monkeypatch, rng):
    """Triples of a program, groups and all values: of `CASES`, then random ones, one by one or merged.

    Students' functions get the right `arrays`.
    """
    monkeypatch.setattr(impl, "arrays", crossed)
    rows = [
        (*made(impl, *case), {n: drawn(rng, 3, 4) for n in "xw"} | {"s": drawn(rng, 4, 4)}) for case in CASES.values()
    ]
    for k in range(20):
        program, inputs = drawn_program(impl, rng)
        rows.append((program, alone(program) if k % 3 == 0 else merged(program), inputs))
    return [(program, groups, programs.evaluated(program, inputs)) for program, groups, inputs in rows]


@pytest.mark.task("13.3")
def test_what_a_group_reads_and_writes(impl, request):
    arrays = impl.arrays
    for program, groups, _ in request.getfixturevalue("given"):
        names = []
        for group in groups:
            (reads, writes), got = crossed(program, group), arrays(program, group)
            names += reads + writes
            what = f"arrays of the group {text(program, [group])} in {text(program, groups)}"
            same(list(got[0]), reads, f"{what}: reads", "not what the group makes itself")
            hint = "what another group reads, or is an output, must be written; nothing else"
            same(list(got[1]), writes, f"{what}: writes", hint)
        what, wanted = f"moved for {text(program, groups)}", sum(size_of(program, name) for name in names)
        same(impl.moved(program, groups), wanted, f"{what} with {program.shapes}", "each group reads for itself")


class Counted:
    """An array of one dimension that counts how often each element is read and written."""

    def __init__(self, array):
        self.array, self.size, self.counts = array, array.size, np.zeros((2, array.size), int)

    def __getitem__(self, index):
        self.counts[0, index] += 1
        return self.array[index]

    def __setitem__(self, index, value):
        self.counts[1, index] += 1
        self.array[index] = value


def loop_of(impl, program, group):
    names = {"math": math}
    exec(impl.source(program, group), names)
    return names["loop"]


@pytest.mark.task("13.4")
def test_loop(impl, given):
    for program, groups, values in given:
        for group in filter(lambda group: pointwise(program, group), groups):  # noqa: B023
            reads, writes = crossed(program, group)
            loop, arrays = loop_of(impl, program, group), {n: Counted(values[n].ravel().copy()) for n in reads}
            arrays |= {n: Counted(np.full(values[n].size, np.nan, np.float32)) for n in writes}
            loop(*arrays.values())
            what = f"loop for {text(program, [group])} in {text(program, groups)}"
            for n, x in arrays.items():
                same(x.array, values[n].ravel(), f"{what}: {n}", rtol=1e-4)
                wanted = np.repeat([[n in reads], [n in writes]], x.size, axis=1).astype(int)
                hint = "read into a variable; write results, once"
                same(x.counts, wanted, f"{what}: reads of each element of {n}, and writes", hint)
            for order in (reads, reads[::-1]):
                memory = {n: values[n].ravel().copy() for n in reads}
                outputs = {n: memory[old] for n, old in zip(writes, order)}
                loop(*memory.values(), *(outputs.get(n, np.empty_like(values[n].ravel())) for n in writes))
                for n, x in outputs.items():
                    hint = "read all elements at i before you write one"
                    same(x, values[n].ravel(), f"{what}: {n}, written over {order}", hint, rtol=1e-4)


def lifetimes(program, groups):
    """Name of each written value -> the positions of its group and of the last that reads it."""
    steps = [[program.instructions[number] for number in group] for group in groups]
    written = [(name, at) for at, group in enumerate(groups) for name in crossed(program, group)[1]]
    return {name: (at, programs.last_read(program, name, steps)) for name, at in written}


@pytest.mark.task("13.5")
def test_blocks(impl, given):
    for program, groups, _ in given:
        got, lives = impl.blocks(program, groups), lifetimes(program, groups)
        what = f"blocks of {text(program, groups)}"
        names = sorted(name for block in got for name in block.names)
        same(names, sorted(lives), f"{what}: the values", "each written value is in one block")
        for block in got:
            first, last = block.names[0], block.names[-1]
            wanted = size_of(program, first), lives[first][0], lives[last][1]
            found = f"{what}: bytes, first and last of the block of {block.names}"
            same((block.nbytes, block.first, block.last), wanted, found, "an output is needed to the end")
            for old, new in zip(block.names, block.names[1:]):
                group = groups[lives[new][0]]
                last_reader = old in crossed(program, group)[0] and lives[old][1] == lives[new][0]
                if not (pointwise(program, group) and last_reader):
                    hint = "pointwise results take over operands that are read for the last time"
                    raise AssertionError(f"{what}: expected that {new} is not in the block of {old}. Hint: {hint}")
        wanted = []
        for position, group in enumerate(groups):
            reads, writes = crossed(program, group)
            free = [n for n in reads if lives.get(n, (0, -1))[1] == position and pointwise(program, group)]
            wanted += [position] * max(len(writes) - len(free), 0)
        firsts = [block.first for block in got]
        same(firsts, wanted, f"{what}: `first` of the blocks", "compute in place where you may; no other order")


def drawn_blocks(impl, rng):
    first = rng.integers(0, 12, 10)
    rows = zip(rng.integers(1, 12, 10), first, first + rng.integers(0, 5, 10))
    return [impl.Block(*map(int, row), [f"v{k}"]) for k, row in enumerate(rows)]


@pytest.mark.task("13.5")
def test_bound(impl, rng):
    for _ in range(12):
        found = drawn_blocks(impl, rng)[: rng.integers(1, 10)]
        alive = np.zeros(17, int)
        for block in found:
            alive[block.first : block.last + 1] += block.nbytes
        what = f"bound of blocks (bytes, first, last) {[(b.nbytes, b.first, b.last) for b in found]}"
        same(impl.bound(found), int(alive.max()), what, "both ends belong to it")


@pytest.mark.task("13.6")
def test_offsets(impl, rng):
    rows = [[(4, 0, 1), (6, 1, 2), (4, 2, 3)], [(2, 0, 3), (8, 1, 2), (8, 3, 4)], [(1, 0, 0), (2, 1, 1)], [(7, 0, 9)]]
    by_hand = [[impl.Block(*row, [f"v{k}"]) for k, row in enumerate(some)] for some in rows]
    for found in [*by_hand, *(drawn_blocks(impl, rng) for _ in range(60))]:
        before = copy.deepcopy(found)
        got = impl.place(found)
        what = f"place of blocks (bytes, first, last) {[(b.nbytes, b.first, b.last) for b in before]}"
        same((found, len(got)), (before, len(before)), f"{what}: the blocks and the number of offsets")
        used, rule = np.zeros(
            (2, 17, sum(b.nbytes for b in found)), bool
        )  # byte by byte: by these offsets, by the rule
        for block, offset in zip(found, got):
            part = used[block.first : block.last + 1, offset : offset + block.nbytes]
            if offset < 0 or part.any():
                overlap = f"{block} at {offset} has no memory of its own while it is in use; offsets: {got}"
                raise AssertionError(f"{what}: {overlap}. Hint: blocks that meet at one position are both in use there")
            part[:] = True
        for block in sorted(found, key=lambda b: b.nbytes, reverse=True):
            taken = rule[block.first : block.last + 1].any(0)
            start = next(k for k in range(taken.size) if not taken[k : k + block.nbytes].any())
            rule[block.first : block.last + 1, start : start + block.nbytes] = True
        size, limit = (int(np.flatnonzero(some.any(0))[-1]) + 1 for some in (used, rule))
        if size > limit:
            expected = f"expected an arena of at most {limit} bytes, got {size}"
            raise AssertionError(f"{what}: {expected}. Hint: the largest first")
