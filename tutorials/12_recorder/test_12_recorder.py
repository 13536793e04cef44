"""The checks of lesson 12: NumPy runs the same functions and programs; the answers of passes are counted."""

import types

import numpy as np
import pytest

from tutorials import drawn, programs, refused, same, same_all

NUMPY = types.SimpleNamespace(exp=np.exp, relu=programs.OPS["relu"], matmul=np.matmul)
SHAPE = (3, 5)
STAYS = "it stays as it was"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def text(program):
    numbers = {f"%{n}": float(x) for n, x in program.constants.items() if x.size == 1}
    return programs.shown(program.instructions, program.outputs) + (f" with constants {numbers}" if numbers else "")


def made(impl, steps, outputs, constants=(), inputs=2):
    """A program by hand: `steps` are such as "4 mul 0 1", which is %4 = mul(%0, %1); constants are numbered from 2."""
    rows = [(op, tuple(map(int, numbers)), int(output)) for output, op, *numbers in map(str.split, steps)]
    arrays = {number: np.array(x, np.float32) for number, x in enumerate(constants, start=2)}
    return impl.Program(list(range(inputs)), arrays, [impl.Instruction(*row) for row in rows], list(outputs))


def drawn_program(impl, rng, length=12):
    """A random program of two inputs and two outputs, with dead code and repetitions, and its inputs."""
    arrays = [drawn(rng, *shape) for shape in [SHAPE, SHAPE, (5, 5), SHAPE, (1, 5), (5, 5)]]
    values = dict(enumerate([*arrays, arrays[2].copy(), arrays[3].copy()]))
    constants = {number: x for number, x in values.items() if number > 1}
    steps = programs.drawn_steps(rng, values, ["add", "mul", "matmul", "exp", "relu"], length)
    outputs = [int(n) for n in rng.integers(8 + length // 2, 8 + length, 2)]
    return impl.Program([0, 1], constants, [impl.Instruction(*step) for step in steps], outputs), arrays[:2]


def cases(impl, rng, by_hand, length=12):
    """The programs of `by_hand`, which lists arguments of `made`, and random ones; and their inputs."""
    arrays = [drawn(rng, 3, 3), drawn(rng, 3, 3)]
    yield from ((made(impl, *row), arrays) for row in by_hand)
    yield from (drawn_program(impl, rng, length) for _ in range(8))


def outputs_of(program, arrays):
    values = programs.evaluated(program, {**dict(zip(program.inputs, arrays)), **program.constants})
    return [np.asarray(values[number]) for number in program.outputs]


def well_formed(impl, program, what):
    """Fails unless values are written once, and before they are read; outputs too."""
    if not isinstance(program, impl.Program):
        raise AssertionError(f"{what}: expected a Program, got {program!r:.100}")
    written = {*program.inputs, *program.constants}
    for step in program.instructions:
        if not isinstance(step, impl.Instruction) or not set(step.inputs) <= written or step.output in written:
            found = "is no Instruction, reads what is not yet written, or writes what is"
            raise AssertionError(f"{what}: {step} {found}: {program}")
        written.add(step.output)
    if not all(isinstance(n, int | np.integer) for n in program.outputs):
        raise AssertionError(f"{what}: expected outputs that are numbers of values, got {program.outputs!r:.100}")
    if lost := [f"%{n}" for n in program.outputs if n not in written]:
        raise AssertionError(f"{what}: nothing writes the outputs {lost}: {program}. Hint: outputs are renamed, too")


@pytest.mark.task("12.1")
def test_symbols(impl, rng):
    program = impl.Program([0, 1], {}, [], [])
    a, b = impl.Symbol(program, 0), impl.Symbol(program, 1)
    k, array = float(rng.integers(2, 9)), drawn(rng, 3)
    names = {**vars(impl), "a": a, "b": b, "k": k, "array": array}
    code = "a + b; b * a; a + k; k + a; array * b; b * array; relu(a); exp(b); matmul(b, a); matmul(array, a)"
    steps = "2 add 0 1; 3 mul 1 0; 5 add 0 4; 7 add 6 0; 9 mul 8 1; 11 mul 1 10; 12 relu 0; 13 exp 1; 14 matmul 1 0"
    wanted = made(impl, [*steps.split("; "), "16 matmul 15 0"], []).instructions
    for count, what in enumerate(code.split("; ")):
        got = eval(what, names)
        if not isinstance(got, impl.Symbol) or got.program is not program:
            raise AssertionError(f"{what}: expected a Symbol of the same program, got {got!r:.80}")
        same(len(program.instructions), count + 1, f"the number of instructions after {what}", "one op appends one")
        hint = "operands in order; a constant is numbered first"
        same(tuple(program.instructions[-1]), tuple(wanted[count]), f"{what}, the last instruction", hint)
        same(got.number, wanted[count].output, f"the number of the symbol of {what}")
    same(sorted(program.constants), [4, 6, 8, 10, 15], f"the numbers of the constants after {code}")
    for number, x in ((4, k), (6, k), (8, array), (10, array), (15, array)):
        same(program.constants[number], np.array(x, np.float32), f"constant {number} after {code}")


@pytest.mark.task("12.1")
def test_constants_are_copied(impl, rng):
    program, array = impl.Program([0], {}, [], []), drawn(rng, 4)
    before = array.copy()
    impl.Symbol(program, 0) + array
    array[:] = 7
    same(program.constants.get(1), before, "the constant of x + array after array[:] = 7", "a record keeps a copy")


def wasteful(ops, a, b):
    twice = ops.relu(a) + ops.relu(a)
    _ = ops.exp(b)
    return 0.5 * twice, ops.matmul(a * 2.0, W), b


W = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
PROGRAMS = {  # name: (function, the number of its inputs, instructions, constants and outputs)
    "the last and the first": (lambda ops, a, b, c: c + a, (3, 1, 0, 1)),
    "one input": (lambda ops, a: (a, a * a), (1, 1, 0, 2)),
    "a loop": (lambda ops, a, b: [a := a * b + 1.0 for _ in range(4)][-1], (2, 8, 4, 1)),
    "wasteful": (wasteful, (2, 7, 3, 3)),
    "an input twice": (lambda ops, a, b: (b, a, b), (2, 0, 0, 3)),
    "a constant result": (lambda ops, a, b: (a * b, 3.0), (2, 1, 1, 2)),
    "a layer": (lambda ops, a, b: ops.relu(ops.matmul(a, W) + W[0]), (2, 3, 2, 1)),
}


@pytest.mark.task("12.2")
@pytest.mark.parametrize("name", PROGRAMS)
def test_record(impl, rng, name):
    (function, counts), calls = PROGRAMS[name], []
    program = impl.record(lambda *symbols: (calls.append(symbols), function(impl, *symbols))[1], counts[0])
    same(len(calls), 1, f"how often record runs {name}")
    well_formed(impl, program, f"record of {name}")
    got = tuple(map(len, (program.inputs, program.instructions, program.constants, program.outputs)))
    what = f"the numbers of inputs, instructions, constants and outputs of {name}"
    same(got, counts, what, "as the function says: no pass has run yet")
    arrays = [drawn(rng, *SHAPE) for _ in range(counts[0])]
    wanted = function(NUMPY, *arrays)
    wanted = [np.asarray(y, np.float32) for y in (wanted if isinstance(wanted, tuple) else (wanted,))]
    same_all(outputs_of(program, arrays), wanted, f"the program of {name}", "are the outputs in order?", **CLOSE)


@pytest.mark.task("12.3")
def test_replay(impl, rng):
    few = ["3 matmul 0 1", "4 mul 3 2"], [4, 0, 2], [2.5]
    for program, arrays in cases(impl, rng, [few]):
        before = repr(program)
        for inputs in (arrays, [0.5 * x for x in arrays]):
            kept = [x.copy() for x in inputs]
            same_all(
                impl.replay(program, inputs), outputs_of(program, kept), text(program), "values by number", **CLOSE
            )
            same_all(inputs, kept, "the inputs after replay", "it changes nothing")
        same(repr(program), before, "the program after replay", STAYS)
    for few in (arrays[:1], [*arrays, arrays[0]]):
        what = f"replay with {len(few)} arrays of a program of 2 inputs"
        refused(lambda few=few: impl.replay(program, few), ValueError, what)


def judged(impl, name, program, arrays, wanted, hint):
    """Run a pass. Its program must have the results and constants `wanted`, and the same outputs."""
    before, what = repr(program), f"{name} of {text(program)}"
    got = getattr(impl, name)(program)
    same(repr(program), before, f"the program after {name}", STAYS)
    well_formed(impl, got, what)
    same([step.output for step in got.instructions], wanted[0], f"the results after {what}", hint)
    same(sorted(got.constants), sorted(wanted[1]), f"the constants after {what}", hint)
    same(list(got.inputs), [0, 1], f"the inputs after {what}", "they stay: the caller gives them")
    same_all(outputs_of(got, arrays), outputs_of(program, arrays), what, "which values do outputs read?", **CLOSE)


@pytest.mark.task("12.4")
def test_dead_code(impl, rng):
    by_hand = [
        (["2 exp 0", "3 relu 1"], [3]),
        (["2 exp 0", "3 relu 2", "4 exp 3", "5 add 0 1"], [5]),  # a dead chain
        (["2 exp 0", "3 relu 2", "4 exp 2"], [3]),
        (["2 add 0 1", "3 mul 2 2"], [3, 2]),
        (["2 exp 0"], [1]),
        (["4 mul 0 3"], [4], [1.5, 2.5]),
    ]
    for program, arrays in cases(impl, rng, by_hand):
        reads = {step.output: step.inputs for step in program.instructions}
        living, waiting = set(), list(program.outputs)
        while waiting:
            number = waiting.pop()
            living.add(number)
            waiting += [n for n in reads.get(number, ()) if n not in living]
        wanted = [n for n in reads if n in living], living & set(program.constants)
        hint = "dead is also what only dead code reads: begin at the end; constants can be dead, too"
        judged(impl, "eliminate", program, arrays, wanted, hint)


@pytest.mark.task("12.5")
def test_common_subexpressions(impl, rng):
    row, column = np.ones((1, 3)), np.ones((3, 1))
    by_hand = [
        (["2 exp 0", "3 exp 0", "4 add 2 3"], [4]),
        (["2 exp 0", "3 exp 0", "4 relu 2", "5 relu 3"], [4, 5]),  # equal only after renaming
        (["2 matmul 0 1", "3 matmul 1 0"], [2, 3]),
        (["2 exp 0", "3 relu 0", "4 exp 1"], [2, 3, 4]),
        (["4 mul 0 2", "5 mul 0 3"], [4, 5], [2.0, 2.0]),
        (["4 mul 0 2", "5 mul 0 3"], [4, 5], [2.0, 3.0]),
        (["4 mul 0 2", "5 mul 0 3"], [4, 5], [0.0, -0.0]),
        (["4 add 0 2", "5 add 0 3", "6 add 2 3"], [4, 5, 6], [row, column]),  # the same numbers
        (["4 relu 0"], [3, 4, 2], [2.0, 2.0]),
    ]
    for program, arrays in cases(impl, rng, by_hand):
        formula, first = {n: f"%{n}" for n in program.inputs}, {}
        formula |= {n: f"{array.shape}{array.tolist()}" for n, array in program.constants.items()}
        for step in program.instructions:
            formula[step.output] = str(hash((step.op, *[formula[n] for n in step.inputs])))
        for number, what in formula.items():
            first.setdefault(what, number)
        results = [n for n in first.values() if n not in program.constants and n > 1]
        hint = "keep the first of those that are equal: the op, and the inputs in order, after renaming"
        judged(impl, "merge", program, arrays, (results, set(first.values()) & set(program.constants)), hint)


def lifetimes(program):
    """For each result: the instruction that writes it, and the last that reads it, or the end."""
    steps = [[step] for step in program.instructions]
    last = {step.output: programs.last_read(program, step.output, steps) for (step,) in steps}
    return {n: (at, at if last[n] is None else last[n]) for at, n in enumerate(last)}


PLANNED = [
    (["2 relu 0", "3 exp 2", "4 relu 3", "5 exp 4", "6 relu 5"], [6]),  # a chain
    (["2 mul 0 1", "3 mul 2 2", "4 relu 3", "5 add 4 3", "6 mul 4 5"], [6]),  # read twice by one instruction
    (["2 relu 0", "3 exp 0", "4 add 2 3", "5 relu 4", "6 exp 5"], [6]),
    (["2 relu 0", "3 exp 1", "4 add 0 1", "5 relu 4"], [2, 3, 5]),  # outputs are kept
    (["2 exp 0", "3 relu 2", "4 exp 1", "5 add 3 2"], [5, 0]),
    (["2 exp 0", "3 exp 1", "4 relu 0"], [4]),  # nobody reads the first two
    (["2 relu 0"], [0, 2]),
    ([], [0]),
]


@pytest.mark.task("12.6")
def test_last_reads(impl, rng):
    for program, _ in cases(impl, rng, PLANNED):
        got, wanted = impl.last_reads(program), {n: last for n, (_, last) in lifetimes(program).items()}
        hint = "instructions count from 0; an output is read at the end"
        same({number: got.get(number) for number in wanted}, wanted, f"last_reads({text(program)})", hint)


@pytest.mark.task("12.6")
@pytest.mark.parametrize("length", [12, 30])
def test_buffers(impl, rng, length):
    for program, arrays in cases(impl, rng, PLANNED, length):
        before, lives, what = repr(program), lifetimes(program), f"plan of {text(program)}"
        places = impl.plan(program)
        same(repr(program), before, "the program after plan", STAYS)
        same(sorted(places), sorted(lives), f"{what}: the values that have a buffer", "results, not inputs, constants")
        for a, (start, end) in lives.items():
            for b, (other, _) in lives.items():
                if a != b and start <= other <= end and places[a] == places[b]:
                    found = f"%{a} and %{b} are both in buffer {places[a]}, but %{b} is written while %{a} is needed"
                    raise AssertionError(f"{what}: {found}, by a later instruction, by the same one, or as an output")
        alive = [sum(first <= at <= last for first, last in lives.values()) for at in range(len(lives))]
        wanted = list(range(max(alive, default=0)))
        same(sorted(set(places.values())), wanted, f"{what}: the buffers", "take a free one if there is one")
        buffers = np.full((len(wanted), 99), np.nan, np.float32)
        values = {**dict(zip(program.inputs, arrays)), **program.constants}
        right = programs.evaluated(program, values)
        for op, reads, output in program.instructions:
            inputs, size, shape = [values[n] for n in reads], right[output].size, right[output].shape
            values[output] = buffers[places[output], :size].reshape(shape)
            values[output][...] = np.nan
            values[output][...] = programs.OPS[op](*inputs)
        got, hint = [values[n] for n in program.outputs], "was a buffer used again too early?"
        same_all(got, outputs_of(program, arrays), f"{what}, run in its buffers", hint, **CLOSE)
