"""cast_scale: a cast and a multiplication by one number are one loop; golden texts and results."""

import numpy as np
import pytest
from bodies import step_by_step
from op_classes import Div, Mul, Neg
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program

from miniflow.backends.registry import KERNELS, Kernel
from miniflow.graph.codegen import expressions
from miniflow.graph.ir import BACKWARD
from miniflow.graph.passes import cast_scale
from miniflow.ops.promotion import Cast

FLOAT32, FLOAT16 = np.dtype("float32"), np.dtype("float16")


@pytest.fixture(autouse=True)
def without_compilation(monkeypatch):
    """Arrays of any size; each step of a region runs by itself."""
    monkeypatch.setitem(expressions.SMALLEST, "cpu", 0)
    monkeypatch.setitem(KERNELS["cpu"], "FusedElementwise", Kernel(step_by_step, returns=True))


def test_cast_then_scale():
    b = ProgramBuilder()
    x, scale = b.input(2, 3, dtype="float16"), b.input()
    before = b.build(b(Mul, b(Cast, x, dtype=FLOAT32), scale))
    after = assert_unchanged(before, cast_scale.run)
    assert str(after).splitlines()[3:] == [
        "  %2:f32[2, 3] = fused_elementwise(%0, %1, body={v0 = cast(x0); v1 = mul(v0, x1) -> v1})",
        "  return %2",
    ]
    assert_same_results(before, after, special=True)


def test_scale_then_cast_and_what_others_read():
    b = ProgramBuilder()
    x = b.input(2, 3)
    scaled = b(Div, x, 3.0)
    before = b.build(b(Cast, scaled, dtype=FLOAT16), scaled)
    after = assert_unchanged(before, cast_scale.run)
    assert str(after).splitlines()[2:] == [
        "  %1:f32[2, 3], %2:f16[2, 3] = fused_elementwise(%0, body={v0 = div(x0, 3.0); v1 = cast(v0) -> v0, v1})",
        "  return %2, %1",
    ]
    assert_same_results(before, after, special=True)


def test_what_is_left_alone():
    b = ProgramBuilder()
    x, y = b.input(2, 3, dtype="float16"), b.input(2, 3)
    product = b(Mul, b(Cast, x, dtype=FLOAT32), y)  # by an array
    negative = b(Neg, b(Cast, x, dtype=FLOAT32))
    cast = b(Cast, x, dtype=np.dtype("float64"))
    b.phase = BACKWARD
    later = b(Mul, cast, 2.0)
    program = b.build(product, negative, later)
    assert cast_scale.run(program) is program


def test_three_in_a_row_are_a_pair_and_one():
    b = ProgramBuilder()
    x = b.input(2, 3, dtype="float16")
    before = b.build(b(Cast, b(Mul, b(Cast, x, dtype=FLOAT32), 0.5), dtype=FLOAT16))
    after = assert_unchanged(before, cast_scale.run)
    assert op_names(after) == ["fused_elementwise", "cast"]
    assert_same_results(before, after, special=True)


def test_two_scales_are_not_taken_together():
    b = ProgramBuilder()
    x = b.input(2, 3, dtype="float16")
    before = b.build(b(Div, b(Mul, b(Cast, x, dtype=FLOAT32), 0.5), 3.0))
    after = assert_unchanged(before, cast_scale.run)
    assert op_names(after) == ["fused_elementwise", "div"]
    assert_same_results(before, after, special=True)


@pytest.mark.parametrize("number", range(5))
def test_random_programs_keep_their_results(number, seed):
    before = random_program(100 * seed + number)
    after = assert_unchanged(before, cast_scale.run)
    assert_same_results(before, after, exact=False, rtol=1e-5, atol=1e-5)
