"""The comparison of programs that the tests of passes rest on: it must notice what a wrong pass would do."""

import numpy as np
import pytest
from op_classes import Add, Mul, Neg
from programs import ProgramBuilder, assert_same_bits, assert_same_results, assert_unchanged, random_program

from miniflow.graph.ir import Program
from miniflow.ops.dropout import Dropout


def of_sum(number: float) -> Program:
    """x + number"""
    b = ProgramBuilder()
    x = b.input(3, 4)
    return b.build(b(Add, x, number))


def test_a_wrong_value_is_noticed():
    with pytest.raises(AssertionError, match="output 0: 12 of 12 differ"):
        assert_same_results(of_sum(1.0), of_sum(1.5))


def test_the_sign_of_a_zero_is_noticed():
    assert_same_results(of_sum(-0.0), of_sum(0.0))  # without special values there is no zero
    with pytest.raises(AssertionError, match="-0.0"):
        assert_same_results(of_sum(-0.0), of_sum(0.0), special=True)


def test_any_nan_is_a_nan_but_no_number():
    payload = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    assert_same_bits(payload, np.array([np.nan, np.nan], np.float32))
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(payload, np.array([np.nan, 0.0], np.float32))


def test_a_state_that_is_written_otherwise_is_noticed():
    programs = []
    for number in (2.0, 3.0):
        b = ProgramBuilder()
        x, s = b.input(2), b.parameter(2, name="s")
        b.write(s, b(Mul, s, number))
        programs.append(b.build(x))
    assert_same_results(programs[0], programs[0])
    with pytest.raises(AssertionError, match="s: 2 of 2 differ"):
        assert_same_results(*programs)


def test_a_slot_read_before_it_is_written_is_noticed():
    b = ProgramBuilder()
    x = b.input(2)
    program = b.build(b(Neg, b(Neg, x)))
    wrong = program.with_(instructions=program.instructions[::-1])
    with pytest.raises(AssertionError, match="before it is written"):
        assert_same_results(program, wrong)


def test_a_pass_that_changes_its_program_is_noticed():
    program = of_sum(1.0)

    def spoil(given: Program) -> Program:
        given.instructions[0].inputs[1] = 2.0
        return given

    with pytest.raises(AssertionError, match="the pass changed"):
        assert_unchanged(program, spoil)


def test_draws_depend_on_their_name():
    b = ProgramBuilder()
    x = b.input(64)
    (y, _), (z, _) = b.draw(Dropout, x, p=0.5), b.draw(Dropout, x, p=0.5)
    one, other = b.program.with_(outputs=[y]), b.program.with_(outputs=[z])
    assert_same_results(one, one)
    with pytest.raises(AssertionError, match="differ"):
        assert_same_results(one, other)


def test_random_programs_are_the_same_for_the_same_seed_and_have_a_backward():
    assert str(random_program(3)) == str(random_program(3)) != str(random_program(4))
    assert {"forward", "backward"} <= {i.phase for i in random_program(3).instructions}
