"""The checks of lesson 12: NumPy runs the same functions and programs; the answers of passes are counted."""

import types

import numpy as np
import pytest

from tutorials import same

EAGER = {"add": np.add, "mul": np.multiply, "matmul": np.matmul, "exp": np.exp}
EAGER["relu"] = lambda x: np.where(x > 0, x, np.float32(0))
NUMPY = types.SimpleNamespace(exp=EAGER["exp"], relu=EAGER["relu"], matmul=np.matmul)
SHAPE = (3, 5)


def drawn(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def text(program):
    """The program on one line, for messages."""
    steps = [f"%{i[2]} = {i[0]}({', '.join(f'%{n}' for n in i[1])})" for i in program.instructions]
    return "; ".join([*steps, "return " + ", ".join(f"%{n}" for n in program.outputs)])


def made(impl, inputs, constants, steps, outputs):
    """A program by hand: `steps` are such as "4 mul 0 1", which is %4 = mul(%0, %1)."""
    instructions = []
    for step in steps:
        output, op, *numbers = step.split()
        instructions.append(impl.Instruction(op, tuple(map(int, numbers)), int(output)))
    arrays = {number: np.array(x, np.float32) for number, x in constants.items()}
    return impl.Program(list(range(inputs)), arrays, instructions, list(outputs))


def drawn_program(impl, rng, length=12):
    """A random program of two inputs and two outputs of `SHAPE`, with dead code and repetitions."""
    arrays = [drawn(rng, *SHAPE), drawn(rng, *SHAPE)]
    constants = {2: drawn(rng, 5, 5), 3: drawn(rng, *SHAPE), 4: drawn(rng, 1, 5)}
    constants |= {5: constants[2].copy(), 6: constants[3].copy(), 7: drawn(rng, 5, 5)}
    values, whole, steps = {0: arrays[0], 1: arrays[1], **constants}, [0, 1, 3, 6], []
    while len(steps) < length:
        op = ("add", "mul", "matmul", "exp", "relu")[rng.integers(5)]
        a, b = (int(rng.choice(whole[-6:])) for _ in "ab")
        reads = {"matmul": (a, int(rng.choice([2, 5, 7]))), "exp": (a,), "relu": (a,)}.get(op, (a, b))
        if op in ("add", "mul") and rng.random() < 0.2:
            reads = (4, a)
        if steps and rng.random() < 0.25:  # the same again
            op, reads = steps[int(rng.integers(len(steps)))][:2]
        result = EAGER[op](*(values[n] for n in reads))
        if np.abs(result).max() < 30:  # else exp of it would overflow
            number = 8 + len(steps)
            steps.append((op, reads, number))
            values[number] = result
            whole.append(number)
    outputs = [int(n) for n in rng.choice(whole[length // 2 :], 2)]
    return impl.Program([0, 1], constants, [impl.Instruction(*step) for step in steps], outputs), arrays


def evaluated(program, arrays):
    """The outputs, each computed from the formula that its program says, with NumPy."""
    known = {**dict(zip(program.inputs, arrays)), **program.constants}
    by_output = {step[2]: step for step in program.instructions}

    def value(number):
        if number not in known:
            op, reads = by_output[number][:2]
            known[number] = EAGER[op](*map(value, reads))
        return known[number]

    return [np.asarray(value(number)) for number in program.outputs]


def same_outputs(got, expected, what, hint):
    same(len(got), len(expected), f"the number of outputs of {what}")
    for k, (x, y) in enumerate(zip(got, expected)):
        same(x, y, f"output {k} of {what}", hint, rtol=1e-4, atol=1e-5)


def snapshot(program):
    """What a pass must not change."""
    arrays = {n: array.tobytes() for n, array in program.constants.items()}
    return list(program.inputs), arrays, list(program.instructions), list(program.outputs)


def unchanged(program, before, what):
    if snapshot(program) != before:
        raise AssertionError(f"{what}: expected that it leaves its program as it was: {text(program)}")


def well_formed(impl, program, what):
    """Whether values are written once, and before they are read."""
    if not isinstance(program, impl.Program):
        raise AssertionError(f"{what}: expected a Program, got {program!r:.100}")
    written = {*program.inputs, *program.constants}
    for step in program.instructions:
        if not set(step[1]) <= written or step[2] in written:
            raise AssertionError(f"{what}: %{step[2]} reads what is not yet written, or is written twice: {program}")
        written.add(step[2])
    if not set(program.outputs) <= written:
        raise AssertionError(f"{what}: an output is never written: {text(program)}")


def steps_of(program):
    return [(op, reads, output) for op, reads, output in map(tuple, program.instructions)]


@pytest.mark.task("12.1")
def test_symbols(impl, rng):
    program = impl.Program([0, 1], {}, [], [])
    a, b = impl.Symbol(program, 0), impl.Symbol(program, 1)
    k, array = float(rng.integers(2, 9)), drawn(rng, 3)
    cases = [
        ("a + b", lambda: a + b, ("add", (0, 1), 2), {}),
        ("b * a", lambda: b * a, ("mul", (1, 0), 3), {}),
        (f"a + {k}", lambda: a + k, ("add", (0, 4), 5), {4: k}),
        (f"{k} + a", lambda: k + a, ("add", (6, 0), 7), {6: k}),
        ("array * b", lambda: array * b, ("mul", (8, 1), 9), {8: array}),
        ("b * array", lambda: b * array, ("mul", (1, 10), 11), {10: array}),
        ("relu(a)", lambda: impl.relu(a), ("relu", (0,), 12), {}),
        ("exp(b)", lambda: impl.exp(b), ("exp", (1,), 13), {}),
        ("matmul(b, a)", lambda: impl.matmul(b, a), ("matmul", (1, 0), 14), {}),
        ("matmul(array, a)", lambda: impl.matmul(array, a), ("matmul", (15, 0), 16), {15: array}),
    ]
    for count, (what, compute, instruction, constants) in enumerate(cases, start=1):
        got = compute()
        if not isinstance(got, impl.Symbol) or got.program is not program:
            raise AssertionError(f"{what}: expected a Symbol of the same program, got {got!r:.80}")
        found = steps_of(program)
        same(len(found), count, f"the number of instructions after {what}", "one op appends one instruction")
        same(found[-1], instruction, f"{what}, the last instruction", "operands in order; a constant is numbered first")
        same(got.number, instruction[2], f"the number of the symbol of {what}")
        for number, x in constants.items():
            same(program.constants.get(number), np.array(x, np.float32), f"constant {number} after {what}")
    same(sorted(program.constants), [4, 6, 8, 10, 15], "the numbers of the constants")


@pytest.mark.task("12.1")
def test_constants_are_copied(impl, rng):
    program = impl.Program([0], {}, [], [])
    array = drawn(rng, 4)
    before = array.copy()
    impl.Symbol(program, 0) + array
    array[:] = 7
    same(program.constants.get(1), before, "the constant of x + array after array[:] = 7", "a record keeps a copy")


def wasteful(ops, a, b):
    twice = ops.relu(a) + ops.relu(a)
    _ = ops.exp(b)
    return 0.5 * twice, ops.matmul(a * 2.0, W), b


W = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
PROGRAMS = {  # name: (function, the number of its instructions, constants and outputs)
    "a sum": (lambda ops, a, b: a + b, (1, 0, 1)),
    "a loop": (lambda ops, a, b: [a := a * b + 1.0 for _ in range(4)][-1], (8, 4, 1)),
    "wasteful": (wasteful, (7, 3, 3)),
    "an input twice": (lambda ops, a, b: (b, a, b), (0, 0, 3)),
    "a constant result": (lambda ops, a, b: (a * b, 3.0), (1, 1, 2)),
    "a layer": (lambda ops, a, b: ops.relu(ops.matmul(a, W) + W[0]), (3, 2, 1)),
}


@pytest.mark.task("12.2")
@pytest.mark.parametrize("name", PROGRAMS)
def test_record(impl, rng, name):
    function, counts = PROGRAMS[name]
    calls = []

    def counted(*symbols):
        calls.append(symbols)
        return function(impl, *symbols)

    program = impl.record(counted, 2)
    same(len(calls), 1, f"how often record runs {name}")
    well_formed(impl, program, f"record of {name}")
    same(list(program.inputs), [0, 1], f"the inputs of {name}")
    got = len(program.instructions), len(program.constants), len(program.outputs)
    same(got, counts, f"the numbers of instructions, constants and outputs of {name}", "as it says: no pass yet")
    a, b = drawn(rng, *SHAPE), drawn(rng, *SHAPE)
    wanted = function(NUMPY, a, b)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    wanted = [np.asarray(y, np.float32) for y in wanted]
    same_outputs(evaluated(program, [a, b]), wanted, f"the program of {name}", "are the outputs in order?")


@pytest.mark.task("12.2")
@pytest.mark.parametrize("count", [1, 3])
def test_record_counts_inputs(impl, rng, count):
    program = impl.record(lambda *inputs: inputs[-1] + inputs[0], count)
    same(list(program.inputs), list(range(count)), f"the inputs of a function of {count}")
    same(steps_of(program), [("add", (count - 1, 0), count)], f"the instructions of last + first of {count}")
    same(list(program.outputs), [count], "the outputs of last + first")


@pytest.mark.task("12.3")
def test_replay(impl, rng):
    for _ in range(8):
        program, arrays = drawn_program(impl, rng)
        before = snapshot(program)
        for inputs in (arrays, [0.5 * x for x in arrays]):
            kept = [x.copy() for x in inputs]
            same_outputs(impl.replay(program, inputs), evaluated(program, kept), text(program), "values by number")
            same_outputs(inputs, kept, "the inputs after replay", "it changes nothing")
        unchanged(program, before, "replay")


@pytest.mark.task("12.3")
def test_replay_of_few_instructions(impl, rng):
    x, w = drawn(rng, 3, 5), drawn(rng, 5, 2)
    program = made(impl, 2, {2: 2.5}, ["3 matmul 0 1", "4 mul 3 2"], [4, 0, 2])
    got = impl.replay(program, [x, w])
    same_outputs(got, [x @ w * np.float32(2.5), x, np.array(2.5, np.float32)], text(program), "")
    for count in (1, 3):
        try:
            impl.replay(program, [x, w, w][:count])
        except ValueError:
            continue
        raise AssertionError(f"replay with {count} arrays of a program of 2 inputs: expected a ValueError")


@pytest.mark.task("12.4")
def test_dead_code(impl):
    cases = [
        (["2 exp 0", "3 relu 1"], [3], [3]),
        (["2 exp 0", "3 relu 2", "4 exp 3", "5 add 0 1"], [5], [5]),  # a dead chain
        (["2 exp 0", "3 relu 2", "4 exp 2"], [3], [2, 3]),
        (["2 add 0 1", "3 mul 2 2"], [3, 2], [2, 3]),
        (["2 exp 0"], [1], []),
    ]
    for steps, outputs, wanted in cases:
        program = made(impl, 2, {}, steps, outputs)
        got = impl.eliminate(program)
        well_formed(impl, got, f"eliminate of {text(program)}")
        found = [step[2] for step in got.instructions]
        hint = "dead is also what only dead code reads: begin at the end"
        same(found, wanted, f"the living results of {text(program)}", hint)


@pytest.mark.task("12.4")
def test_dead_code_of_random_programs(impl, rng):
    for _ in range(8):
        program, arrays = drawn_program(impl, rng)
        before = snapshot(program)
        got = impl.eliminate(program)
        unchanged(program, before, "eliminate")
        well_formed(impl, got, f"eliminate of {text(program)}")
        reads = {step[2]: step[1] for step in program.instructions}
        living, waiting = set(), list(program.outputs)
        while waiting:
            number = waiting.pop()
            living.add(number)
            waiting += [n for n in reads.get(number, ()) if n not in living]
        wanted = [step for step in steps_of(program) if step[2] in living]
        same(steps_of(got), wanted, f"the instructions of eliminate of {text(program)}")
        same(sorted(got.constants), sorted(living & set(program.constants)), "the constants", "drop those unread, too")
        same(list(got.inputs), [0, 1], "the inputs after eliminate", "they stay: the caller gives them")
        same_outputs(evaluated(got, arrays), evaluated(program, arrays), text(got), "")


@pytest.mark.task("12.5")
def test_common_subexpressions(impl, rng):
    x, two, row, column = drawn(rng, 3, 3), 2.0, np.ones((1, 3)), np.ones((3, 1))
    cases = [  # steps, constants, outputs, wanted: how many instructions and constants
        (["2 exp 0", "3 exp 0", "4 add 2 3"], {}, [4], (2, 0)),
        (["2 exp 0", "3 exp 0", "4 relu 2", "5 relu 3"], {}, [4, 5], (2, 0)),  # equal only after renaming
        (["2 matmul 0 1", "3 matmul 1 0"], {}, [2, 3], (2, 0)),
        (["2 exp 0", "3 relu 0", "4 exp 1"], {}, [2, 3, 4], (3, 0)),
        (["4 mul 0 2", "5 mul 0 3"], {2: two, 3: two}, [4, 5], (1, 1)),
        (["4 mul 0 2", "5 mul 0 3"], {2: two, 3: 3.0}, [4, 5], (2, 2)),
        (["4 mul 0 2", "5 mul 0 3"], {2: 0.0, 3: -0.0}, [4, 5], (2, 2)),
        (["4 add 0 2", "5 add 0 3", "6 add 2 3"], {2: row, 3: column}, [4, 5, 6], (3, 2)),  # the same numbers
        (["4 relu 0"], {2: two, 3: two}, [3, 4, 2], (1, 1)),
    ]
    for steps, constants, outputs, wanted in cases:
        program = made(impl, 2, constants, steps, outputs)
        got = impl.merge(program)
        well_formed(impl, got, f"merge of {text(program)}")
        found = len(got.instructions), len(got.constants)
        what = f"the numbers of instructions and constants of merge of {text(program)}"
        shown = f" with constants {[np.asarray(c).tolist() for c in constants.values()]}" if constants else ""
        same(found, wanted, what + shown, "equal: the op, and the inputs in order, after renaming")
        arrays = [x, drawn(rng, 3, 3)]
        same_outputs(evaluated(got, arrays), evaluated(program, arrays), text(got), "readers read the first result")


@pytest.mark.task("12.5")
def test_common_subexpressions_of_random_programs(impl, rng):
    for _ in range(8):
        program, arrays = drawn_program(impl, rng)
        before = snapshot(program)
        got = impl.merge(program)
        unchanged(program, before, "merge")
        well_formed(impl, got, f"merge of {text(program)}")
        formula = {n: f"%{n}" for n in program.inputs}
        formula |= {n: f"{array.shape}{array.tolist()}" for n, array in program.constants.items()}
        first = {}
        for number in program.constants:
            first.setdefault(formula[number], number)
        for op, reads, output in program.instructions:
            formula[output] = str(hash((op, *[formula[n] for n in reads])))
            first.setdefault(formula[output], output)
        wanted = [n for n in first.values() if n not in program.constants]
        same([step[2] for step in got.instructions], wanted, f"the results after merge of {text(program)}", "the first")
        same(sorted(got.constants), [2, 3, 4, 7], "the constants after merge", "5 repeats 2, and 6 repeats 3")
        same(list(got.inputs), [0, 1], "the inputs after merge")
        same_outputs(evaluated(got, arrays), evaluated(program, arrays), text(got), "readers read the first result")


def lifetimes(program):
    """For each result: the instruction that writes it, and the last that reads it, or the end."""
    found = {}
    for at, step in enumerate(program.instructions):
        readers = [k for k, other in enumerate(program.instructions) if step[2] in other[1]]
        found[step[2]] = (at, len(program.instructions) if step[2] in program.outputs else max([at, *readers]))
    return found


def judged(impl, program, arrays, fewest=None):
    """Check a plan: no overlap, as few buffers as possible, and the right outputs in buffers full of NaN."""
    before = snapshot(program)
    places = impl.plan(program)
    unchanged(program, before, "plan")
    what = f"plan of {text(program)}"
    lives = lifetimes(program)
    same(sorted(places), sorted(lives), f"{what}: the values that have a buffer", "results, not inputs and constants")
    alive = [sum(first <= at <= last for first, last in lives.values()) for at in range(len(program.instructions))]
    if fewest is None:
        fewest = max(alive)
    for a, (start, end) in lives.items():
        for b, (other, _) in lives.items():
            if a != b and start <= other <= end and places[a] == places[b]:
                raise AssertionError(
                    f"{what}: %{a} and %{b} are both in buffer {places[a]}, but %{b} is written while %{a} is needed, "
                    f"by a later instruction, by the same one, or as an output"
                )
    same(sorted(set(places.values())), list(range(fewest)), f"{what}: the buffers", "take a free one if there is one")
    buffers = np.full((fewest, *SHAPE), np.nan, np.float32)
    values = {**dict(zip(program.inputs, arrays)), **program.constants}
    for op, reads, output in program.instructions:
        inputs = [values[n] for n in reads]
        values[output] = buffers[places[output]]
        values[output][:] = np.nan
        values[output][:] = EAGER[op](*inputs)
    got = [values[n] for n in program.outputs]
    same_outputs(got, evaluated(program, arrays), f"{what}, run in its buffers", "was a buffer reused too early?")


@pytest.mark.task("12.6")
def test_last_reads(impl, rng):
    programs = [drawn_program(impl, rng)[0] for _ in range(8)]
    programs.append(made(impl, 2, {}, ["2 exp 0", "3 relu 2", "4 exp 1", "5 add 3 2"], [5, 0]))
    for program in programs:
        got = impl.last_reads(program)
        wanted = {number: last for number, (_, last) in lifetimes(program).items()}
        found = {number: got.get(number) for number in wanted}
        same(found, wanted, f"last_reads({text(program)})", "instructions count from 0; an output is read at the end")


@pytest.mark.task("12.6")
@pytest.mark.parametrize(
    "steps, outputs, fewest",
    [
        (["2 relu 0", "3 exp 2", "4 relu 3", "5 exp 4", "6 relu 5"], [6], 2),  # a chain
        (["2 mul 0 1", "3 mul 2 2", "4 relu 3", "5 add 4 3", "6 mul 4 5"], [6], 3),  # read twice by one instruction
        (["2 relu 0", "3 exp 0", "4 add 2 3", "5 relu 4", "6 exp 5"], [6], 3),
        (["2 relu 0", "3 exp 1", "4 add 0 1", "5 relu 4"], [2, 3, 5], 4),  # outputs are kept
        (["2 exp 0", "3 exp 1", "4 relu 0"], [4], 1),  # nobody reads the first two
        (["2 relu 0"], [0, 2], 1),
        ([], [0], 0),
    ],
)
def test_buffers(impl, rng, steps, outputs, fewest):
    program = made(impl, 2, {}, steps, outputs)
    judged(impl, program, [drawn(rng, *SHAPE), drawn(rng, *SHAPE)], fewest)


@pytest.mark.task("12.6")
@pytest.mark.parametrize("length", [12, 12, 12, 30, 30])
def test_buffers_of_random_programs(impl, rng, length):
    for _ in range(4):
        judged(impl, *drawn_program(impl, rng, length))
