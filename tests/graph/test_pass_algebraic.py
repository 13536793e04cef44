"""algebraic: every rule on numbers, NaN, infinities and zeros of either sign; near misses; random programs."""

import numpy as np
import pytest
from op_classes import Abs, Add, Ceil, Div, Floor, Mul, Neg, Round, Sign, Sub, Trunc, Where
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program, recorded

from miniflow.graph.ir import Program, Slot
from miniflow.graph.passes import algebraic, dead_code
from miniflow.graph.uses import Uses
from miniflow.ops.permute import Transpose
from miniflow.ops.promotion import Cast, ToInteger
from miniflow.ops.shape import Expand, SumToShape, View

F16, F32, F64, I8, I32, I64 = (np.dtype(name) for name in ("f2", "f4", "f8", "i1", "i4", "i8"))


def simplified(b: ProgramBuilder, *outputs: Slot) -> Program:
    """The program after the pass, held against the one before."""
    before = b.build(*outputs)
    after = dead_code.run(assert_unchanged(before, algebraic.run))
    assert_same_results(before, after, special=True)
    return after


IDENTITIES = {
    "add(x, -0.0)": lambda b, x: b(Add, x, -0.0),
    "add(-0.0, x)": lambda b, x: b(Add, -0.0, x),
    "sub(x, 0)": lambda b, x: b(Sub, x, 0),
    "mul(x, 1.0)": lambda b, x: b(Mul, x, 1.0),
    "mul(True, x)": lambda b, x: b(Mul, True, x),
    "div(x, 1)": lambda b, x: b(Div, x, 1),
    "neg(neg(x))": lambda b, x: b(Neg, b(Neg, x)),
    "where(x, x)": lambda b, x: b(Where, b.input(3, 4, dtype="bool"), x, x),
    "sum_to_shape": lambda b, x: b(SumToShape, x, shape=(3, 4)),
    "cast to its own dtype": lambda b, x: b(Cast, x, dtype=F32),
    "cast to a wider one and back": lambda b, x: b(Cast, b(Cast, x, dtype=F64), dtype=F32),
}


@pytest.mark.parametrize("rule", IDENTITIES)
def test_what_changes_nothing_is_dropped(rule):
    b = ProgramBuilder()
    x = b.input(3, 4)
    after = simplified(b, IDENTITIES[rule](b, x))
    assert after.instructions == [] and after.outputs == [x]


NEAR_MISSES = {
    "x + 0 turns -0 into 0": lambda b, x: b(Add, x, 0.0),
    "x - -0 turns -0 into 0": lambda b, x: b(Sub, x, -0.0),
    "1 - x": lambda b, x: b(Sub, 1.0, x),
    "1 / x": lambda b, x: b(Div, 1.0, x),
    "x * -1": lambda b, x: b(Mul, x, -1.0),
    "a narrower dtype on the way": lambda b, x: b(Cast, b(Cast, x, dtype=F16), dtype=F32),
    "floats through integers": lambda b, x: b(Cast, b(ToInteger, x, dtype=I64), dtype=F32),
    "an expansion that the sum needs": lambda b, x: b(Add, b(Expand, x, shape=(2, 3, 4)), 1.0),
    "floor(ceil(x))": lambda b, x: b(Floor, b(Ceil, x)),
}


@pytest.mark.parametrize("rule", NEAR_MISSES)
def test_what_changes_something_stays(rule):
    b = ProgramBuilder()
    program = b.build(NEAR_MISSES[rule](b, b.input(3, 4)))
    assert algebraic.run(program) is program


def test_signs_move_into_sums_and_factors():
    b = ProgramBuilder()
    x, y = b.input(3, 4), b.input(4)
    n, m = b(Neg, x), b(Neg, y)
    outputs = [b(Add, x, m), b(Add, n, y), b(Sub, y, n), b(Sub, 1.0, m), b(Mul, n, 0.3), b(Neg, b(Mul, x, 0.3))]
    after = simplified(b, *outputs, b(Div, n, 3.0), b(Abs, n))
    assert str(after) == (
        "program:\n"
        "  %0:f32[3, 4] = input input.0\n"
        "  %1:f32[4] = input input.1\n"
        "  %2:f32[3, 4] = sub(%0, %1)\n"
        "  %3:f32[3, 4] = sub(%1, %0)\n"
        "  %4:f32[3, 4] = add(%1, %0)\n"
        "  %5:f32[4] = add(1.0, %1)\n"
        "  %6:f32[3, 4] = mul(%0, -0.3)\n"
        "  %7:f32[3, 4] = mul(%0, -0.3)\n"
        "  %8:f32[3, 4] = div(%0, -3.0)\n"
        "  %9:f32[3, 4] = abs(%0)\n"
        "  return %2, %3, %4, %5, %6, %7, %8, %9"
    )


@pytest.mark.parametrize("op", [Abs, Floor, Ceil, Trunc, Round, Sign])
def test_doing_it_twice_is_doing_it_once(op):
    b = ProgramBuilder()
    once = b(op, b.input(3, 4))
    after = simplified(b, b(op, once))
    assert len(after.instructions) == 1 and after.outputs == [once]


def test_integers_are_not_negated_in_factors():
    b = ProgramBuilder()
    x = b.input(3, dtype="int64")
    after = simplified(b, b(Mul, b(Neg, x), 3), b(Add, x, 0), b(Add, x, b(Neg, x)))
    assert op_names(after) == ["neg", "mul", "sub"] and after.outputs[1] is x


def test_unsigned_integers_have_no_sign_to_ignore():
    b = ProgramBuilder()
    program = b.build(b(Abs, b(Neg, b.input(5, dtype="uint8"))))
    assert algebraic.run(program) is program


@pytest.mark.parametrize(
    "kind, steps, left",
    [
        ("float16", [F32, F64], ["cast"]),
        ("int8", [I32, F32], ["cast"]),
        ("int32", [F64, I32], []),
        ("int64", [F64, I64], ["cast", "to_integer"]),  # float64 has 53 bits
        ("int64", [F64, F32], ["cast", "cast"]),  # rounded twice
        ("int32", [I64, I8], ["to_integer"]),
        ("float32", [F64, I32], ["cast", "to_integer"]),
        ("bool", [F16, F32], ["cast"]),
        ("bool", [I8, np.dtype(bool)], []),
    ],
)
def test_casts_through_wider_dtypes(kind, steps, left):
    b = ProgramBuilder()
    x = y = b.input(5, dtype=kind)
    for dtype in steps:
        y = b(ToInteger if dtype.kind in "iub" else Cast, y, dtype=dtype)
    before = b.build(y)
    after = dead_code.run(algebraic.run(before))
    assert op_names(after) == left and (left or after.outputs == [x])
    assert_same_results(before, after)


def test_operands_are_not_expanded_where_they_are_broadcast():
    b = ProgramBuilder()
    x, y, c = b.input(3, 4), b.input(4), b.input(3, 4, dtype="bool")
    wide = b(Expand, y, shape=(3, 4))
    after = simplified(b, b(Mul, wide, x), b(Sub, x, wide), b(Where, c, wide, 0.0), b(Mul, wide, wide))
    assert op_names(after) == ["expand", "mul", "sub", "where", "mul"]
    expanded = [i.op.function_name for i in Uses(after).readers[after.instructions[0].output]]
    assert expanded == ["mul"]  # the last, of which one operand has to bring the shape


def test_a_result_that_lies_otherwise_in_memory_does_not_stand_for_another():
    b = ProgramBuilder()
    transposed = b(Transpose, b.input(3, 4), dim0=0, dim1=1)
    after = simplified(b, b(View, b(Mul, transposed, 1.0), shape=(12,)))
    assert op_names(after) == ["transpose", "mul", "view"]


def test_gradients_lose_their_detours():
    program = recorded(lambda x, y: differentiated(x, y), (3, 4), (3, 4))
    after = dead_code.run(algebraic.run(program))
    assert "neg" in op_names(program) and "neg" not in op_names(after)
    assert_same_results(program, after, special=True)


def differentiated(x, y):
    """The gradients of sum((x - y)^2 + (y - x)), which autograd computes with a power of 1 and negations."""
    x, y = x.requires_grad_(), y.requires_grad_()
    ((x - y) ** 2 + (y - x)).sum().backward()
    return x.grad, y.grad


def test_results_of_random_programs_stay(seed):
    for number in range(12):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, algebraic.run), special=True)
