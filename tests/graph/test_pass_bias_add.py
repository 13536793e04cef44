"""bias_add: the bias of a layer is added by the pointwise op that follows; golden texts and results."""

import numpy as np
import pytest
from bodies import step_by_step
from op_classes import Add, Clamp, Gelu, Mul, Relu
from programs import ProgramBuilder, assert_same_results, assert_unchanged, of_model, op_names

from miniflow import nn
from miniflow.backends.registry import KERNELS, Kernel
from miniflow.graph.ir import BACKWARD
from miniflow.graph.passes import bias_add, elementwise_fusion
from miniflow.ops.convolution import Conv2d
from miniflow.ops.matmul import Linear
from miniflow.ops.reduction import Sum
from miniflow.ops.shape import View


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Small layers too; each step of a region runs by itself."""
    monkeypatch.setattr(bias_add, "SMALLEST", 0)
    monkeypatch.setitem(KERNELS["cpu"], "FusedElementwise", Kernel(step_by_step, returns=True))


def test_bias_and_gelu_are_one():
    b = ProgramBuilder()
    x, w, bias = b.input(4, 3), b.parameter(5, 3), b.parameter(5)
    before = b.build(b(Gelu, b(Linear, x, w, bias), approximate="none"))
    after = assert_unchanged(before, bias_add.run)
    assert str(after).splitlines()[4:] == [
        "  %3:f32[4, 5] = matmul(%0, %1, transpose_x=False, transpose_y=True)",
        "  %4:f32[4, 5] = fused_elementwise(%3, %2, body={v0 = add(x0, x1); v1 = gelu(v0, approximate=none) -> v1})",
        "  return %4",
    ]
    assert_same_results(before, after, exact=False, special=True, rtol=1e-6, atol=1e-6)


def test_rows_of_several_dims():
    b = ProgramBuilder()
    x, w, bias, residual = b.input(2, 3, 3), b.parameter(4, 3), b.parameter(4), b.input(2, 3, 4)
    rows = b(Linear, x, w, bias)
    before = b.build(b(Add, residual, rows), b(Sum, rows, dim=None, keepdim=False))
    after = assert_unchanged(before, bias_add.run)
    assert str(after).splitlines()[5:] == [
        "  %4:f32[2, 3, 4] = matmul(%0, %2, transpose_x=False, transpose_y=True)",
        "  %5:f32[2, 3, 4], %6:f32[2, 3, 4] = fused_elementwise(%4, %3, %1, "
        "body={v0 = add(x0, x1); v1 = add(x2, v0) -> v0, v1})",
        "  %7:f32[] = sum(%5, dim=None, keepdim=False)",
        "  return %6, %7",
    ]
    assert_same_results(before, after, exact=False, rtol=1e-6, atol=1e-6)


CONV = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}


def test_convolutions_too():
    b = ProgramBuilder()
    x, w, bias = b.input(2, 3, 4, 5), b.parameter(6, 3, 2, 2), b.parameter(6)
    before = b.build(b(Clamp, b(Conv2d, x, w, bias, **CONV), 0.0, 6.0))
    after = assert_unchanged(before, bias_add.run)
    assert str(after).splitlines()[4:] == [
        "  %3:f32[2, 6, 3, 4] = conv2d(%0, %1, None, "
        "stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1)",
        "  %4:f32[6, 1, 1] = view(%2, shape=(6, 1, 1))",
        "  %5:f32[2, 6, 3, 4] = fused_elementwise(%3, %4, body={v0 = add(x0, x1); v1 = clamp(v0, 0.0, 6.0) -> v1})",
        "  return %5",
    ]
    assert_same_results(before, after, exact=False, special=True, rtol=1e-6, atol=1e-6)


def a_view_of_images(b, x, w, bias):
    y = b(Conv2d, b.input(2, 3, 1, 1), b.parameter(6, 3, 1, 1), b.parameter(6), **CONV)
    return [b(Relu, b(View, y, shape=(3, 4, 1, 1)))]


def no_bias(b, x, w, bias):
    return [b(Relu, b(Linear, x, w, None))]


def other_columns(b, x, w, bias):
    return [b(Relu, b(View, b(Linear, x, w, bias), shape=(20,)))]


def nothing_pointwise(b, x, w, bias):
    return [b(Sum, b(Linear, x, w, bias), dim=0, keepdim=False)]


def another_phase(b, x, w, bias):
    y = b(Linear, x, w, bias)
    b.phase = BACKWARD
    return [b(Relu, y)]


@pytest.mark.parametrize("make", [a_view_of_images, no_bias, other_columns, nothing_pointwise, another_phase])
def test_what_is_left_alone(make):
    b = ProgramBuilder()
    program = b.build(*make(b, b.input(4, 3), b.parameter(5, 3), b.parameter(5)))
    assert bias_add.run(program) is program


def test_half_precision_and_small_layers_are_left_alone(monkeypatch):
    for kind, smallest in (("float16", 0), ("float32", 21)):
        monkeypatch.setattr(bias_add, "SMALLEST", smallest)
        b = ProgramBuilder()
        x, w, bias = b.input(4, 3, dtype=kind), b.parameter(5, 3, dtype=kind), b.parameter(5, dtype=kind)
        program = b.build(b(Relu, b(Linear, x, w, bias)))
        assert bias_add.run(program) is program


def test_a_result_of_the_program_is_still_computed():
    b = ProgramBuilder()
    x, w, bias = b.input(4, 3), b.parameter(5, 3), b.parameter(5)
    y = b(Linear, x, w, bias)
    before = b.build(y, b(Relu, y), b(View, y, shape=(2, 2, 5)))
    after = assert_unchanged(before, bias_add.run)
    assert op_names(after) == ["matmul", "fused_elementwise", "view"]
    assert_same_results(before, after, exact=False, special=True, rtol=1e-6, atol=1e-6)


def test_layers_that_gate_each_other_are_not_both_joined():
    b = ProgramBuilder()
    x, w, v, bias, offset = b.input(4, 3), b.parameter(5, 3), b.parameter(5, 3), b.parameter(5), b.parameter(5)
    h, g = b(Linear, x, w, bias), b(Linear, x, v, offset)
    total, other = (b(Sum, y, dim=0, keepdim=True) for y in (h, g))
    before = b.build(b(Mul, g, total), b(Mul, h, other))
    after = assert_unchanged(before, bias_add.run)
    assert op_names(after).count("fused_elementwise") == 1 and op_names(after).count("linear") == 1
    assert_same_results(before, after, exact=False, rtol=1e-5, atol=1e-6)


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(30))
def test_random_gates_between_layers_keep_their_results(number):
    random = np.random.default_rng(number)
    b = ProgramBuilder(seed=number)
    pool = [b(Linear, b.input(4, 3), b.parameter(4, 3), b.parameter(4)) for _ in range(4)]
    for _ in range(6):
        x, y = (pool[i] for i in random.choice(len(pool), 2, replace=False))
        pool.append(b(Mul, x, b(Sum, y, dim=0, keepdim=True)) if random.random() < 0.8 else b(Add, y, b(Relu, x)))
    before = b.build(*pool[4:])
    after = assert_unchanged(before, bias_add.run)
    assert_same_results(before, after, exact=False, rtol=1e-4, atol=1e-4)
    assert_same_results(before, elementwise_fusion.run(after), exact=False, rtol=1e-4, atol=1e-4)


def test_a_product_that_others_wait_for_stays():
    b = ProgramBuilder()
    x, w, bias = b.input(6, 3), b.parameter(4, 3), b.parameter(4)
    rows = b(Linear, x, w, bias)
    y = b(Relu, b(View, rows, shape=(2, 3, 4)))
    b.after = rows
    before = b.build(y, b(Relu, x))
    assert_same_results(before, assert_unchanged(before, bias_add.run), exact=False, rtol=1e-6, atol=1e-6)


def test_larger_regions_take_the_pair_in(monkeypatch):
    monkeypatch.setitem(elementwise_fusion.SMALLEST, "cpu", 0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Tanh(), nn.Linear(8, 4), nn.ReLU())
    before = of_model(model, (3, 5, 6))
    after = assert_unchanged(assert_unchanged(before, bias_add.run), elementwise_fusion.run)
    bodies = [i.attrs["body"].text for i in after.instructions if "body" in i.attrs]
    assert bodies[0] == "{v0 = add(x0, x1); v1 = gelu(v0, approximate=none); v2 = tanh(v1) -> v0, v2}"
    assert "linear" not in op_names(after)
    assert_same_results(before, after, exact=False, rtol=1e-5, atol=np.float32(1e-6))
