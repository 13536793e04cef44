"""dead_code: golden texts, and results of random programs that stay."""

from op_classes import Add, FloorDivide, Mul, Neg
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program

import miniflow as flow
from miniflow.graph.interpret import interpret
from miniflow.graph.passes import dead_code
from miniflow.ops.dropout import Dropout
from miniflow.ops.normalization import BatchNorm


def test_instructions_and_constants_without_a_reader_are_dropped():
    b = ProgramBuilder()
    x, w = b.input(2, 3), b.parameter(3)
    used, unused = b.constant([1.0, 2.0, 3.0], "float32"), b.constant([4.0, 5.0, 6.0], "float32")
    b(Neg, b(Add, x, unused))
    y = b(Mul, b(Add, x, used), w)
    b(Neg, y)
    before = b.build(y)
    after = assert_unchanged(before, dead_code.run)
    assert str(after) == (
        "program:\n"
        "  %0:f32[2, 3] = input input.0\n"
        "  %1:f32[3] = parameter parameter.0\n"
        "  %2:f32[3] = constant [1., 2., 3.]\n"
        "  %3:f32[2, 3] = add(%0, %2)\n"
        "  %4:f32[2, 3] = mul(%3, %1)\n"
        "  return %4"
    )
    assert_same_results(before, after)


def test_new_values_of_states_are_results():
    b = ProgramBuilder()
    x, s = b.input(3), b.state(3, kind="buffer")
    b.write(s, b(Add, s, x))
    program = b.build(x)
    assert dead_code.run(program) is program


def test_one_living_output_keeps_the_instruction():
    b = ProgramBuilder()
    _, mean, _ = b(BatchNorm, b.input(4, 3), None, None, eps=1e-5)
    program = b.build(mean)
    assert dead_code.run(program) is program


def test_what_an_instruction_waits_for_lives():
    b = ProgramBuilder()
    x = b.input(3)
    b.after = b(Neg, x)
    y = b(Add, x, 1.0)
    assert op_names(dead_code.run(b.build(y))) == ["neg", "add"]


def test_an_op_that_may_refuse_values_lives():
    b = ProgramBuilder()
    x, i = b.input(3), b.input(3, dtype="int64")
    b(FloorDivide, x, x)  # of floats: any will do
    b(FloorDivide, b(Neg, i), 2)
    assert op_names(dead_code.run(b.build(x))) == ["neg", "floor_divide"]


def test_a_dropped_random_op_leaves_the_draws_of_the_others_as_they_were():
    b = ProgramBuilder()
    x = b.input(100)
    b.draw(Dropout, x, p=0.5)
    y, _ = b.draw(Dropout, x, p=0.5)
    before = b.build(y)
    after = assert_unchanged(before, dead_code.run)
    assert op_names(after) == ["dropout"] and len(after.draws.generators) == 2
    outputs = []
    for program in (before, after):
        for generator in program.draws.generators:
            generator.manual_seed(3)
        outputs.append(interpret(program, [flow.ones(100)._array])[0][0])
    assert (outputs[0] == outputs[1]).all() and 0 < outputs[0].sum() < 200


def test_results_of_random_programs_stay(seed):
    for number in range(8):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, dead_code.run), special=True)
