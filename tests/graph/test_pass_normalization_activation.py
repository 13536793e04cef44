"""normalization_activation: golden texts, near misses, kernels against the single ops, a residual block."""

import numpy as np
import pytest
from compare import assert_close
from op_classes import Add, Mul, Neg, Relu, ReluGrad
from programs import (
    ProgramBuilder,
    assert_same_results,
    assert_unchanged,
    of_model,
    op_names,
    random_program,
)  # fmt: skip

import miniflow as flow
from miniflow.graph.interpret import interpret
from miniflow.graph.ir import Program, Slot
from miniflow.graph.passes import normalization_activation
from miniflow.ops.normalization import BatchNorm, BatchNormGrad, BatchNormInference
from miniflow.ops.promotion import Cast

SHAPES = [(4, 3), (2, 3, 5), (3, 5, 2, 2), (2, 3, 7, 9), (5, 17, 64, 33)]


def fused(b: ProgramBuilder, *outputs: Slot, special: bool = True) -> Program:
    """The program after the pass, held against the one before."""
    before = b.build(*outputs)
    after = assert_unchanged(before, normalization_activation.run)
    assert_same_results(before, after, special=special)
    return after


def test_forward_with_a_shortcut_and_backward():
    b = ProgramBuilder()
    x, z, dy, weight, bias = (b.input(*shape) for shape in ((2, 3, 4, 4),) * 3 + ((3,),) * 2)
    y, mean, var = b(BatchNorm, x, weight, bias, eps=1e-5)
    r = b(Relu, b(Add, z, y))
    g = b(ReluGrad, dy, r)
    dx, dweight, dbias = b(BatchNormGrad, g, x, weight, mean, var, eps=1e-5, training=True)
    after = fused(b, r, dx, dweight, dbias, mean)
    assert str(after) == (
        "program:\n"
        "  %0:f32[2, 3, 4, 4] = input input.0\n"
        "  %1:f32[2, 3, 4, 4] = input input.1\n"
        "  %2:f32[2, 3, 4, 4] = input input.2\n"
        "  %3:f32[3] = input input.3\n"
        "  %4:f32[3] = input input.4\n"
        "  %5:f32[2, 3, 4, 4], %6:f64[3], %7:f64[3] = batch_norm_relu(%0, %3, %4, %1, eps=1e-05)\n"
        "  %8:f32[2, 3, 4, 4], %9:f32[3], %10:f32[3] = "
        "batch_norm_relu_grad(%2, %5, %0, %3, %6, %7, eps=1e-05, training=True)\n"
        "  return %5, %8, %9, %10, %6"
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shortcut", [True, False])
def test_results_are_those_of_the_single_ops(shape, training, shortcut):
    b = ProgramBuilder()
    x, z, dy = (b.input(*shape) for _ in range(3))
    weight, bias = b.input(shape[1]), b.input(shape[1])
    if training:
        y, mean, var = b(BatchNorm, x, weight, None, eps=1e-5)
    else:
        mean, var = (b.constant(np.linspace(low, 2, shape[1]), "float32") for low in (-1, 0.5))
        y = b(BatchNormInference, x, mean, var, None, bias, eps=1e-5)
    r = b(Relu, b(Add, y, z) if shortcut else y)
    grads = b(BatchNormGrad, b(ReluGrad, dy, r), x, weight, mean, var, eps=1e-5, training=training)
    after = fused(b, r, *grads)
    assert op_names(after) == ["batch_norm_relu" if training else "batch_norm_relu_inference", "batch_norm_relu_grad"]


@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_other_dtypes(kind):
    b = ProgramBuilder()
    x, dy = b.input(2, 3, 5, 5, dtype=kind), b.input(2, 3, 5, 5, dtype=kind)
    y, mean, var = b(BatchNorm, x, None, None, eps=1e-5)
    r = b(Relu, y)
    before = b.build(r, *b(BatchNormGrad, b(ReluGrad, dy, r), x, None, mean, var, eps=1e-5, training=True))
    after = normalization_activation.run(before)
    assert op_names(after) == ["batch_norm_relu", "batch_norm_relu_grad"]
    assert_same_results(before, after, exact=kind == "float64")


def read_twice(b, x, y):
    return b(Relu, y), b(Neg, y)


def also_a_result(b, x, y):
    return b(Relu, y), y


def broadcast(b, x, y):
    return (b(Relu, b(Add, y, b.input(4, 4))),)


def doubled(b, x, y):
    return (b(Relu, b(Add, y, y)),)


def test_a_shortcut_that_needs_the_statistics_is_added_behind_them():
    b = ProgramBuilder()
    x = b.input(4, 3)
    y, mean, _ = b(BatchNorm, x, None, None, eps=1e-5)
    z, _, var = b(BatchNorm, b(Neg, x), None, None, eps=1e-5)
    shortcut = b(Mul, x, b(Cast, mean, dtype=x.dtype))
    first = b(Relu, b(Add, y, shortcut))
    after = fused(b, first, b(Relu, b(Add, z, x)), special=False)
    assert op_names(after).count("relu") == 1 and op_names(after).count("batch_norm_relu") == 1
    alone = after.with_(outputs=[first])
    assert normalization_activation.run(alone) is alone


def test_shortcuts_that_need_the_statistics_of_each_other():
    b = ProgramBuilder()
    x, z = b.input(4, 3), b.input(4, 3)
    (y, _, var), (u, mean, _) = (b(BatchNorm, a, None, None, eps=1e-5) for a in (x, z))
    first = b(Add, y, b(Mul, x, b(Cast, mean, dtype=x.dtype)))
    second = b(Add, u, b(Mul, z, b(Cast, var, dtype=x.dtype)))
    after = fused(b, b(Relu, first), b(Relu, second), special=False)
    assert op_names(after).count("batch_norm_relu") == 1


def awaited(b, x, y):
    r = b(Relu, y)
    b.after = y
    return r, b(Neg, x)


@pytest.mark.parametrize("tail", [read_twice, also_a_result, broadcast, doubled, awaited])
def test_what_is_needed_elsewhere_is_not_fused(tail):
    b = ProgramBuilder()
    x = b.input(2, 3, 4, 4)
    y, _, _ = b(BatchNorm, x, None, None, eps=1e-5)
    program = b.build(*tail(b, x, y))
    assert normalization_activation.run(program) is program


def test_a_masked_gradient_that_goes_elsewhere_too_is_not_fused():
    b = ProgramBuilder()
    x, dy, mean, var = b.input(2, 3), b.input(2, 3), b.constant(np.zeros(3)), b.constant(np.ones(3))
    g = b(ReluGrad, dy, x)
    program = b.build(b(BatchNormGrad, g, x, None, mean, var, eps=1e-5, training=True)[0], g)
    assert normalization_activation.run(program) is program


class Block(flow.nn.Module):
    """A residual block with batch norm, as in ResNet."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1, self.conv2 = (flow.nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = flow.nn.BatchNorm2d(channels), flow.nn.BatchNorm2d(channels)

    def forward(self, x):
        y = flow.relu(self.norm1(self.conv1(x)))
        return flow.relu(self.norm2(self.conv2(y)) + x)


def test_a_residual_block_in_training_and_in_inference():
    model = flow.nn.Sequential(Block(6), Block(6))
    before = of_model(model, (3, 6, 8, 8))
    after = assert_unchanged(before, normalization_activation.run)
    assert_same_results(before, after)
    assert op_names(after).count("batch_norm_relu") == 4 and op_names(after).count("batch_norm_relu_grad") == 3
    assert "relu" not in op_names(after) and op_names(after).count("relu_grad") == 1 and len(after.writes) == 12
    model.eval()
    before = of_model(model, (3, 6, 8, 8))
    after = normalization_activation.run(before)
    assert op_names(after).count("batch_norm_relu_inference") == 4
    assert_same_results(before, after)


def test_statistics_are_right_for_numpy():
    b = ProgramBuilder()
    x, z = b.input(4, 3, 5), b.input(4, 3, 5)
    y, mean, var = b(BatchNorm, x, None, None, eps=1e-5)
    program = normalization_activation.run(b.build(b(Relu, b(Add, y, z)), mean, var))
    values, shortcut = (np.random.default_rng(i).normal(size=(4, 3, 5)).astype(np.float32) for i in range(2))
    (result, *statistics), _ = interpret(program, [values, shortcut])
    wide = values.astype(np.float64)
    expected = wide.mean((0, 2)), wide.var((0, 2))
    normal = (wide - expected[0][:, None]) / np.sqrt(expected[1][:, None] + 1e-5)
    assert_close(result, np.maximum(normal + shortcut, 0).astype(np.float32))
    for got, want in zip(statistics, expected, strict=True):
        assert_close(got, want, rtol=1e-6)


def test_results_of_random_programs_stay(seed):
    for number in range(4):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, normalization_activation.run))
