"""cse: golden texts, what must not be merged, and results of random programs that stay."""

import pytest
from op_classes import Add, Clamp, Exp, Maximum, Mul, Sub
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program

from miniflow.graph.passes import cse
from miniflow.ops.dropout import Dropout
from miniflow.ops.reduction import Sum


def test_the_same_is_computed_once():
    b = ProgramBuilder()
    x, y = b.input(2, 3), b.input(2, 3)
    first = b(Exp, b(Add, x, y))
    second = b(Exp, b(Add, y, x))
    sums = [b(Sum, e, dim=d, keepdim=False) for e, d in ((first, 0), (second, 0), (second, 1))]
    before = b.build(*sums)
    after = assert_unchanged(before, cse.run)
    assert str(after) == (
        "program:\n"
        "  %0:f32[2, 3] = input input.0\n"
        "  %1:f32[2, 3] = input input.1\n"
        "  %2:f32[2, 3] = add(%0, %1)\n"
        "  %3:f32[2, 3] = exp(%2)\n"
        "  %4:f32[3] = sum(%3, dim=0, keepdim=False)\n"
        "  %5:f32[2] = sum(%3, dim=1, keepdim=False)\n"
        "  return %4, %4, %5"
    )
    assert_same_results(before, after, special=True)


def test_equal_constants_are_one():
    b = ProgramBuilder()
    x = b.input(2)
    pair = [b.constant([1.0, 2.0], "float32") for _ in range(2)]
    other, wide = b.constant([1.0, -0.0], "float32"), b.constant([1.0, 0.0], "float32")
    before = b.build(*[b(Add, x, c) for c in (*pair, other, wide)])
    after = assert_unchanged(before, cse.run)
    assert len(after.constants) == 3 and op_names(after) == ["add"] * 3
    assert_same_results(before, after, special=True)


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (1.0, 2.0), (1, True)])
def test_numbers_are_told_apart(numbers):
    b = ProgramBuilder()
    x = b.input(3)
    program = b.build(*[b(Add, x, number) for number in numbers])
    assert cse.run(program) is program


def test_attributes_are_told_apart():
    b = ProgramBuilder()
    x = b.input(3)
    program = b.build(*[b(Clamp, x, low, None) for low in (0.0, -0.0)])
    assert cse.run(program) is program


def test_order_counts_where_it_changes_bits():
    b = ProgramBuilder()
    x, y = b.input(3), b.input(3)
    program = b.build(b(Sub, x, y), b(Sub, y, x), b(Maximum, x, y), b(Maximum, y, x))
    assert cse.run(program) is program


def test_random_ops_stay_apart():
    b = ProgramBuilder()
    x = b.input(3)
    program = b.build(*[b.draw(Dropout, x, p=0.5)[0] for _ in range(2)])
    assert cse.run(program) is program


def test_recomputation_stays_apart():
    b = ProgramBuilder()
    x = b.input(3)
    y = b(Exp, x)
    b.after = b(Mul, y, 2.0)
    program = b.build(y, b(Exp, x))
    assert cse.run(program) is program


def test_results_of_random_programs_stay(seed):
    for number in range(8):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, cse.run), special=True)
