"""dropout_mask: golden texts, near misses, the mask's bits, and results that stay."""

import numpy as np
import pytest
from op_classes import Add, Gelu, Neg, Relu, ReluGrad
from programs import ProgramBuilder, assert_same_results, assert_unchanged, of_model, op_names, random_program

import miniflow as flow
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.graph.passes import dead_code, dropout_mask
from miniflow.ops.dropout import Dropout, DropoutGrad, DropoutMask


def test_the_mask_is_drawn_for_itself_where_neighbours_fuse():
    b = ProgramBuilder()
    x, z, dy = (b.input(32, 33) for _ in range(3))
    y, keep = b.draw(Dropout, b(Gelu, x, approximate="none"), p=0.25)
    before = b.build(b(Add, y, z), b(DropoutGrad, dy, keep, scale=4 / 3))
    after = assert_unchanged(before, dropout_mask.run)
    assert str(after) == (
        "program:\n"
        "  %0:f32[32, 33] = input input.0\n"
        "  %1:f32[32, 33] = input input.1\n"
        "  %2:f32[32, 33] = input input.2\n"
        "  %3:f32[32, 33] = gelu(%0, approximate='none')\n"
        "  %4:bool[32, 33] = dropout_mask(shape=(32, 33), p=0.25, seed=<draw.0.seed>, offset=<draw.0.offset>, "
        "device=device(type='cpu', index=0))\n"
        "  %5:f32[32, 33] = dropout_grad(%3, %4, scale=1.3333333333333333)\n"
        "  %6:f32[32, 33] = add(%5, %1)\n"
        "  %7:f32[32, 33] = dropout_grad(%2, %4, scale=1.3333333333333333)\n"
        "  return %6, %7"
    )
    assert_same_results(before, after, special=True)


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_behind_relu_the_result_is_the_mask(p):
    b = ProgramBuilder()
    x, dy = b.input(5, 7), b.input(5, 7)
    r = b(Relu, x)
    y, keep = b.draw(Dropout, r, p=p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    dx = b(ReluGrad, b(DropoutGrad, dy, keep, scale=scale), r)
    before = b.build(y, dx)
    after = assert_unchanged(before, dropout_mask.run)
    assert op_names(after) == ["relu", "dropout", "relu_grad", "mul"]
    assert keep not in after.consumers() and after.consumers()[r] == [after.producers()[y]]
    assert_same_results(before, after)


def test_nan_before_relu_gives_the_same_gradients():
    b = ProgramBuilder()
    x, dy = b.input(40, 40), b.input(40, 40)
    r = b(Relu, x)
    y, keep = b.draw(Dropout, r, p=0.5)
    before = b.build(b(ReluGrad, b(DropoutGrad, dy, keep, scale=2.0), r))
    assert_same_results(before, dropout_mask.run(before), special=True)


def test_another_scale_or_another_relu_keeps_the_mask():
    b = ProgramBuilder()
    x, dy = b.input(5, 7), b.input(5, 7)
    r = b(Relu, x)
    _, keep = b.draw(Dropout, r, p=0.5)
    program = b.build(
        b(ReluGrad, b(DropoutGrad, dy, keep, scale=3.0), r),
        b(ReluGrad, b(DropoutGrad, dy, keep, scale=2.0), b(Relu, dy)),
    )
    assert dropout_mask.run(program) is program


def test_without_a_neighbour_dropout_stays_one_loop():
    b = ProgramBuilder()
    y, _ = b.draw(Dropout, b.input(64, 64), p=0.5)
    program = b.build(y)
    assert dropout_mask.run(program) is program


def test_small_arrays_stay_as_they_are():
    b = ProgramBuilder()
    y, _ = b.draw(Dropout, b(Neg, b.input(8, 8)), p=0.5)
    program = b.build(y)
    assert dropout_mask.run(program) is program


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (7, 5), (0, 3), (600, 601)])
def test_the_mask_has_the_bits_of_dropout(shape):
    attrs = {"p": 0.3, "seed": 2**40 + 1, "offset": 5}
    _, keep = kernel_on(Dropout, "cpu")(np.ones(shape, np.float32), **attrs)
    drawn = kernel_on(DropoutMask, "cpu")(shape=shape, device=flow.device("cpu"), **attrs)
    np.testing.assert_array_equal(drawn, keep)
    assert drawn.dtype == bool and drawn.shape == shape


def test_a_model_with_relu_and_dropout():
    nn = flow.nn
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 16), nn.GELU(), nn.Dropout(0.2))
    before = of_model(model, (64, 16))
    after = dead_code.run(assert_unchanged(before, dropout_mask.run))
    assert op_names(after).count("dropout_mask") == 2 and "dropout" not in op_names(after)
    assert len([i for i in after.instructions if i.op is DropoutGrad and i.phase == "backward"]) == 1
    assert_same_results(before, after)


def test_results_of_random_programs_stay(seed):
    for number in range(8):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, dropout_mask.run), special=True)
