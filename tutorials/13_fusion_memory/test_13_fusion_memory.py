"""The checks of lesson 13: NumPy runs the same programs; reads, writes, bytes and overlaps are counted."""

import copy
import math

import numpy as np
import pytest

from tutorials import same

POINTWISE = {"add": np.add, "mul": np.multiply, "exp": np.exp}
POINTWISE["relu"] = lambda x: np.where(x > 0, x, np.float32(0))
POINTWISE["sigmoid"] = lambda x: np.float32(1) / (1 + np.exp(-x))
OPS = {**POINTWISE, "matmul": np.matmul, "transpose": np.transpose}
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
    "nothing to do": ("b = transpose(x)", "b", "b"),
}


def drawn(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def text(program, groups):
    """Groups of a program on one line, for messages."""
    steps = [f"{out} = {op}({', '.join(names)})" for out, op, names in program.instructions]
    return f"{' | '.join('; '.join(steps[k] for k in group) for group in groups)}; return {', '.join(program.outputs)}"


def alone(program):
    return [[number] for number in range(len(program.instructions))]


def made(impl, name):
    lines, outputs, groups = CASES[name]
    program = impl.program(lines, outputs, x=(3, 4), w=(3, 4), s=(4, 4))
    place = {step[0]: number for number, step in enumerate(program.instructions)}
    return program, [[place[c] for c in group] for group in groups.split()]


def drawn_program(impl, rng, length=24):
    """A random program of matrices of several shapes without dead code, and arrays for its inputs."""
    sizes = [int(n) for n in rng.permutation([2, 3, 5, 7])[:2]]
    inputs = {f"x{m}{n}": drawn(rng, m, n) for m in sizes for n in sizes}
    values, steps = dict(inputs), []
    while len(steps) < length:
        op = list(OPS)[rng.choice(7, p=[0.25, 0.2, 0.1, 0.1, 0.1, 0.2, 0.05])]
        a, *others = rng.permutation(list(values)[-5:]).tolist()
        fit = [n for n in [a, *others] if values[n].shape == values[a].shape]
        if op == "matmul":
            fit = [n for n in values if len(values[n]) == values[a].shape[1]]
        reads = (a, str(rng.choice(fit))) if op in ("add", "mul", "matmul") else (a,)
        result = OPS[op](*(values[n] for n in reads))
        if np.abs(result).max() < 30:  # else exp of it would overflow
            steps.append((f"v{len(steps)}", op, reads))
            values[steps[-1][0]] = result
    needed = {f"v{length - 1}", *(steps[k][0] for k in rng.integers(length, size=2))}
    outputs = " ".join(sorted(needed))
    for out, _, reads in reversed(steps):
        needed.update(reads if out in needed else ())
    lines = [f"{out} = {op}({', '.join(reads)})" for out, op, reads in steps if out in needed]
    return impl.program("\n".join(lines), outputs, **{name: x.shape for name, x in inputs.items()}), inputs


def evaluated(program, inputs):
    values = dict(inputs)
    for out, op, reads in program.instructions:
        values[out] = OPS[op](*(values[n] for n in reads))
    return values


def ordered(program, groups):
    """An order of groups, by how many have to run before each; None if there is a cycle."""
    home = {program.instructions[number][0]: g for g, group in enumerate(groups) for number in group}
    before = np.zeros((len(groups), len(groups)), bool)
    for out, _, reads in program.instructions:
        for name in reads:
            if home.get(name, home[out]) != home[out]:
                before[home[name], home[out]] = True
    for _ in groups:
        before |= (before.astype(int) @ before) > 0
    return None if before.diagonal().any() else [groups[g] for g in np.argsort(before.sum(0), kind="stable")]


def mergers(program, groups):
    """The pairs of groups that could be one loop: both of them, and the better groups."""
    home = {program.instructions[number][0]: group for group in groups for number in group}
    ops = {out: op for out, op, _ in program.instructions}
    for out, op, reads in program.instructions:
        for name in reads:
            if op in POINTWISE and ops.get(name) in POINTWISE and home[name] is not home[out]:
                pair = [home[name], home[out]]
                order = ordered(program, [*(g for g in groups if g not in pair), sorted(pair[0] + pair[1])])
                if order:
                    yield pair, order


def merged(program):
    """Groups that cannot be merged further."""
    groups = alone(program)
    while found := next(mergers(program, groups), None):
        groups = found[1]
    return ordered(program, groups)


def crossed(program, group):
    """The names that a group reads from memory, and those that it writes."""
    inside = [program.instructions[number] for number in sorted(group)]
    own, reads, writes = [step[0] for step in inside], [], []
    for _, _, names in inside:
        for name in names:
            if name not in own + reads:
                reads.append(name)
    for name in own:
        if name in program.outputs or any(name in s[2] for s in program.instructions if s not in inside):
            writes.append(name)
    return reads, writes


def in_run_order(program, groups, given, what):
    """Whether these are the given groups, each after those whose results it reads."""
    same(sorted(groups or []), sorted(given), what, "these groups, each once")
    ran = set(program.inputs)
    for group in groups:
        missing = [name for name in crossed(program, group)[0] if name not in ran]
        if missing:
            late = f"the group {text(program, [group])} runs after what makes {', '.join(missing)}"
            raise AssertionError(f"{what}: expected that {late}. Hint: a group runs as a whole")
        ran |= {program.instructions[number][0] for number in group}


@pytest.mark.task("13.1")
@pytest.mark.parametrize(
    "steps, groups",
    [
        ("b = exp(x); c = matmul(b, s); d = mul(b, c)", [[0, 2], [1]]),
        ("b = exp(x); c = relu(b); d = exp(w); e = relu(d)", [[0, 3], [1, 2]]),  # each group reads the other
        ("b = exp(x); c = relu(b); d = relu(c); e = relu(d)", [[0], [1, 3], [2]]),
        ("b = exp(x); c = matmul(b, s); d = matmul(c, s); e = mul(b, d)", [[1], [0, 3], [2]]),
    ],
)
def test_groups_without_an_order(impl, steps, groups):
    program = impl.program(steps, "b c d", x=(3, 4), w=(3, 4), s=(4, 4))
    got = impl.schedule(program, groups)
    same(got, None, f"schedule of {text(program, groups)}", "groups are left, and none of them can run")


@pytest.mark.task("13.1")
def test_order_of_random_groups(impl, rng):
    for k in range(30):
        program, _ = drawn_program(impl, rng, 16)
        groups = [[number] for number in rng.permutation(len(program.instructions)).tolist()]
        for _ in range(min(k % 4, len(groups) - 1)):
            groups[0] = sorted(groups[0] + groups.pop())
        given = copy.deepcopy(groups)
        got, what = impl.schedule(program, groups), f"schedule of {text(program, given)}"
        same(groups, given, f"the groups after {what}", "they are the caller's")
        if ordered(program, groups) is None:
            same(got, None, what, "some groups need each other")
        else:
            in_run_order(program, got, given, what)


@pytest.mark.task("13.2")
@pytest.mark.parametrize("name", CASES)
def test_fusion(impl, monkeypatch, name):
    monkeypatch.setattr(impl, "schedule", ordered)
    program, groups = made(impl, name)
    what = f"fuse of {text(program, alone(program))}"
    got = impl.fuse(program)
    in_run_order(program, got, got, what)
    same(sorted(got), sorted(groups), what, "does a read join them, and does no path lead out and back?")


@pytest.mark.task("13.2")
def test_fusion_of_random_programs(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "schedule", ordered)
    for _ in range(25):
        program, _ = drawn_program(impl, rng)
        got, what = impl.fuse(program), f"fuse of {text(program, alone(program))}"
        same(sorted(sum(got, [])), sum(alone(program), []), f"{what}: the instructions", "each is in one group")
        for group in got:
            same(group, sorted(group), f"{what}: a group", "the smallest number first")
            ops = {program.instructions[number][1] for number in group}
            same(len(group) > 1 and sorted(ops - set(POINTWISE)) or [], [], f"{what}: fused, but not pointwise")
        in_run_order(program, got, got, what)
        for pair, _ in mergers(program, got):
            raise AssertionError(f"{what}: expected as few groups as possible, but {text(program, pair)} can be one")


def grouped_programs(impl, rng, count=15):
    """Programs, groups and all values: of `CASES`, then random ones, one by one or merged."""
    for name in CASES:
        program, groups = made(impl, name)
        yield program, groups, evaluated(program, {n: drawn(rng, *program.shapes[n]) for n in program.inputs})
    for k in range(count):
        program, inputs = drawn_program(impl, rng)
        yield program, alone(program) if k % 3 == 0 else merged(program), evaluated(program, inputs)


@pytest.mark.task("13.3")
def test_what_a_group_reads_and_writes(impl, rng):
    for program, groups, _ in grouped_programs(impl, rng):
        for group in groups:
            reads, writes = crossed(program, group)
            what = f"arrays of the group {text(program, [group])} in {text(program, groups)}"
            same(list(impl.arrays(program, group)[0]), reads, f"{what}: reads", "not what the group makes itself")
            hint = "what another group reads, or is an output, must be written; nothing else"
            same(list(impl.arrays(program, group)[1]), writes, f"{what}: writes", hint)


@pytest.mark.task("13.3")
def test_bytes_moved(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "arrays", crossed)
    for program, groups, _ in grouped_programs(impl, rng):
        names = [name for group in groups for some in crossed(program, group) for name in some]
        wanted = int(sum(4 * np.prod(program.shapes[name]) for name in names))
        what = f"moved for {text(program, groups)} with {program.shapes}"
        same(impl.moved(program, groups), wanted, what, "each group reads and writes for itself")


class Counted:
    """An array of one dimension that counts how often each element is read and written."""

    def __init__(self, array):
        self.array, self.size = array, array.size
        self.reads, self.writes = np.zeros(array.size, int), np.zeros(array.size, int)

    def __getitem__(self, index):
        assert index in range(self.size), f"loop: expected an index from 0 to {self.size - 1}, got {index!r}"
        self.reads[index] += 1
        return self.array[index]

    def __setitem__(self, index, value):
        assert index in range(self.size), f"loop: expected an index from 0 to {self.size - 1}, got {index!r}"
        self.writes[index] += 1
        self.array[index] = value


def loop_of(impl, program, group):
    names = {"math": math}
    exec(impl.source(program, group), names)
    return names["loop"]


@pytest.mark.task("13.4")
def test_loop(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "arrays", crossed)
    for program, groups, values in grouped_programs(impl, rng):
        for group in groups:
            if program.instructions[group[0]][1] not in POINTWISE:
                continue
            reads, writes = crossed(program, group)
            operands = {n: Counted(values[n].ravel()) for n in reads}
            results = {n: Counted(np.full(values[n].size, np.nan, np.float32)) for n in writes}
            loop_of(impl, program, group)(*operands.values(), *results.values())
            what = f"loop for {text(program, [group])} in {text(program, groups)}"
            for n, x in results.items():
                same(x.array, values[n].ravel(), f"{what}: {n}", "", rtol=1e-4)
            for n, x in {**operands, **results}.items():
                wanted = np.full(x.size, n in operands, int)
                same(x.reads, wanted, f"{what}: reads of each element of {n}", "keep it in a variable")
                same(x.writes, 1 - wanted, f"{what}: writes of each element of {n}", "results, once")


@pytest.mark.task("13.4")
def test_loop_in_place(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "arrays", crossed)
    program = impl.program("b = exp(x); c = mul(x, b); d = add(c, w)", "b d", x=(15,), w=(15,))
    inputs = {n: drawn(rng, 15) for n in ("x", "w")}
    for memory in ("xw", "wx"):
        arrays = {n: x.copy() for n, x in inputs.items()}
        loop_of(impl, program, [0, 1, 2])(arrays["x"], arrays["w"], *(arrays[n] for n in memory))
        for name, n in zip("bd", memory):
            what = f"{name} of the loop for {text(program, [[0, 1, 2]])}; b and d are in the memory of {memory}"
            wanted = evaluated(program, inputs)[name]
            same(arrays[n], wanted, what, "read all elements at i before you write one", rtol=1e-4)


def lifetimes(program, groups):
    """Name of each written value -> the positions of its group and of the last that reads it."""
    found = {}
    for position, own in enumerate(groups):
        for name in crossed(program, own)[1]:
            readers = [k for k, other in enumerate(groups) if name in crossed(program, other)[0]]
            found[name] = (position, len(groups) if name in program.outputs else max(readers))
    return found


def planned(impl, program, groups):
    """Blocks, with in-place results."""
    found = []
    for name, (first, last) in lifetimes(program, groups).items():
        reads, _ = crossed(program, groups[first])
        old = [b for b in found if b.last == first and b.names[-1] in reads]
        if old and program.instructions[groups[first][0]][1] in POINTWISE:
            old[0].names.append(name)
            old[0].last = last
        else:
            found.append(impl.Block(4 * int(np.prod(program.shapes[name])), first, last, [name]))
    return found


@pytest.mark.task("13.5")
def test_blocks(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "arrays", crossed)
    for program, groups, _ in grouped_programs(impl, rng, 24):
        got, lives = impl.blocks(program, groups), lifetimes(program, groups)
        what = f"blocks of {text(program, groups)}"
        names = sorted(name for block in got for name in block.names)
        same(names, sorted(lives), f"{what}: the values", "each written value is in one block")
        for block in got:
            size = 4 * int(np.prod(program.shapes[block.names[0]]))
            wanted = size, lives[block.names[0]][0], lives[block.names[-1]][1]
            shown = f"{what}: bytes, first and last of the block of {block.names}"
            same((block.nbytes, block.first, block.last), wanted, shown, "an output is needed to the end")
            for old, new in zip(block.names, block.names[1:]):
                group = groups[lives[new][0]]
                pointwise = program.instructions[group[0]][1] in POINTWISE and old in crossed(program, group)[0]
                if not pointwise or lives[old][1] != lives[new][0]:
                    hint = "pointwise results take over operands that are read for the last time"
                    raise AssertionError(f"{what}: expected that {new} is not in the block of {old}. Hint: {hint}")
        firsts = [block.first for block in got]
        wanted = sorted(block.first for block in planned(impl, program, groups))
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


def judge_offsets(impl, found):
    """Check offsets, byte by byte: no overlap, and an arena that is not larger than that of the rule."""
    before = copy.deepcopy(found)
    got = impl.place(found)
    what = f"place of blocks (bytes, first, last) {[(b.nbytes, b.first, b.last) for b in before]}"
    same((found, len(got)), (before, len(before)), f"{what}: the blocks and the number of offsets")
    total, length = sum(b.nbytes for b in found), max(b.last for b in found) + 1
    used, rule = np.zeros((2, length, total), bool)  # by these offsets, and by the rule
    for block, offset in zip(found, got):
        part = used[block.first : block.last + 1, offset : offset + block.nbytes]
        if offset < 0 or part.any():
            overlap = f"{block} at {offset} has no memory of its own while it is in use; offsets: {got}"
            raise AssertionError(f"{what}: {overlap}. Hint: blocks that meet at one position are both in use there")
        part[:] = True
    for block in sorted(found, key=lambda b: b.nbytes, reverse=True):
        taken = rule[block.first : block.last + 1].any(0)
        start = next(k for k in range(total) if not taken[k : k + block.nbytes].any())
        rule[block.first : block.last + 1, start : start + block.nbytes] = True
    size, limit = (int(np.flatnonzero(some.any(0))[-1]) + 1 for some in (used, rule))
    if size > limit:
        raise AssertionError(f"{what}: expected an arena of at most {limit} bytes, got {size}. Hint: the largest first")


@pytest.mark.task("13.6")
def test_offsets(impl, rng):
    rows = [[(4, 0, 1), (6, 1, 2), (4, 2, 3)], [(2, 0, 3), (8, 1, 2), (8, 3, 4)], [(1, 0, 0), (2, 1, 1)], [(7, 0, 9)]]
    for some in rows:
        judge_offsets(impl, [impl.Block(*row, [f"v{k}"]) for k, row in enumerate(some)])
    for _ in range(25):
        judge_offsets(impl, drawn_blocks(impl, rng))
    for program, groups, _ in grouped_programs(impl, rng):
        judge_offsets(impl, planned(impl, program, groups))
