"""constant_folding: golden texts, what must not be folded, and results of random programs that stay."""

import numpy as np
from op_classes import Add, Exp, Mul
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program

from miniflow.graph.ir import Scalar
from miniflow.graph.passes import constant_folding
from miniflow.ops.random import Uniform
from miniflow.ops.reduction import Sum
from miniflow.ops.shape import Expand


def test_what_depends_on_constants_only_becomes_one():
    b = ProgramBuilder()
    x, c = b.input(2), b.constant([[0.0, 1.0], [2.0, 3.0]], "float32")
    total = b(Sum, b(Mul, c, c), dim=0, keepdim=False)
    before = b.build(b(Add, x, total))
    after = assert_unchanged(before, constant_folding.run)
    assert str(after) == (
        "program:\n"
        "  %0:f32[2] = input input.0\n"
        "  %1:f32[2, 2] = constant [[0., 1.], [2., 3.]]\n"
        "  %2:f32[2, 2] = constant [[0., 1.], [4., 9.]]\n"
        "  %3:f32[2] = constant [ 4., 10.]\n"
        "  %4:f32[2] = add(%0, %3)\n"
        "  return %4"
    )
    assert_same_results(before, after, special=True)


def test_states_are_not_constants():
    b = ProgramBuilder()
    program = b.build(b(Exp, b.parameter(3)))
    assert constant_folding.run(program) is program


def test_random_ops_are_left():
    b = ProgramBuilder()
    program = b.build(b.draw(Uniform, b.constant(np.zeros(3, np.float32)), low=0.0, high=1.0))
    assert constant_folding.run(program) is program


def test_attributes_that_vary_are_left():
    b = ProgramBuilder()
    low = Scalar("low", lambda: 0)
    program = b.build(b(Sum, b.constant(np.ones((2, 3), np.float32)), dim=low, keepdim=False))
    assert constant_folding.run(program) is program


def test_recomputation_is_left():
    b = ProgramBuilder()
    x, c = b.input(3), b.constant([1.0], "float32")
    b.after = b(Exp, x)
    program = b.build(b(Exp, c))
    assert constant_folding.run(program) is program


def test_memory_is_not_spent_on_large_results():
    b = ProgramBuilder()
    column, row = b.constant(np.ones((200, 1), np.float32)), b.constant(np.ones((1, 100), np.float32))
    program = b.build(b(Add, column, row))
    assert constant_folding.run(program) is program
    large = b.constant(np.ones((200, 100), np.float32))
    folded = constant_folding.run(b.build(b(Exp, large)))
    assert op_names(folded) == ["add"]


def test_expanded_views_are_left():
    b = ProgramBuilder()
    program = b.build(b(Expand, b.constant([1.0], "float32"), shape=(9,)))
    assert constant_folding.run(program) is program


def test_results_of_random_programs_stay(seed):
    for number in range(8):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, constant_folding.run), special=True)
