"""Batch and layer normalization against NumPy in float64."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.normalization import batch_norm, layer_norm

ALL_FLOATS = ("float16", "bfloat16", "float32", "float64")
EPS = 1e-3
draw = np.random.default_rng(0)


def normalize(x, dims, eps=EPS):
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)


def per_channel(p, x):
    return p.reshape(-1, *(1,) * (x.ndim - 2))


def parameters(shape):
    return draw.uniform(0.5, 2, shape), draw.normal(size=shape)


@pytest.mark.parametrize("shape, dims", [((4, 5), 1), ((2, 3, 4), 2), ((7,), 1), ((2, 1, 6), 1)], ids=str)
def test_layer_norm(shape, dims):
    normalized = shape[len(shape) - dims :]
    last = tuple(range(len(shape) - dims, len(shape)))

    def reference(x, weight, bias):
        return normalize(x, last) * weight + bias

    def function(x, weight, bias):
        return layer_norm(x, normalized, weight, bias, EPS)

    inputs = [3 * draw.normal(size=shape), *parameters(normalized)]
    checks.check_op(
        function, inputs, reference, dtypes=ALL_FLOATS, third=len(shape) == 1, layouts=("fortran", "strided")
    )


@pytest.mark.parametrize("with_weight, with_bias", [(False, False), (True, False), (False, True)])
def test_layer_norm_without_parameters(with_weight, with_bias):
    weight, bias = parameters(5)
    given = ([weight] if with_weight else []) + ([bias] if with_bias else [])

    def split(parameters):
        parameters = list(parameters)
        return parameters.pop(0) if with_weight else None, parameters.pop(0) if with_bias else None

    def reference(x, *parameters):
        w, b = split(parameters)
        return normalize(x, 1) * (1 if w is None else w) + (0 if b is None else b)

    checks.check_op(
        lambda x, *parameters: layer_norm(x, 5, *split(parameters), eps=EPS),
        [draw.normal(size=(4, 5)), *given],
        reference,
    )


@pytest.mark.parametrize("shape", [(3, 4097), (15, 8), (17, 33), (1025, 257)], ids=str)
def test_layer_norm_around_blocks_and_parts(shape):
    """More than one block of a row, fewer and more rows than parts, and the parallel variant; far from zero."""
    x = (10 + draw.normal(size=shape)).astype(np.float32)
    weight, bias = (p.astype(np.float32) for p in parameters(shape[1]))
    tensors = [flow.tensor(v, requires_grad=True) for v in (x, weight, bias)]
    y = layer_norm(tensors[0], shape[1], *tensors[1:], eps=EPS)
    xhat = normalize(x.astype(np.float64), 1)
    checks.assert_close(y, (xhat * weight + bias).astype(np.float32), atol=1e-4)
    dy = draw.normal(size=shape).astype(np.float32)
    y.backward(flow.tensor(dy))
    g = dy * weight.astype(np.float64)
    rstd = 1 / np.sqrt(x.astype(np.float64).var(1, keepdims=True) + EPS)
    dx = rstd * (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True))
    for tensor, expected in zip(tensors, (dx, (dy * xhat).sum(0), dy.astype(np.float64).sum(0)), strict=True):
        checks.assert_close(tensor.grad, expected.astype(np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 2, 4), (1, 3, 9)], ids=str)
def test_batch_norm_in_training(shape):
    dims = (0, *range(2, len(shape)))

    def function(x, weight, bias):
        return batch_norm(x, None, None, weight, bias, training=True, eps=EPS)

    def reference(x, weight, bias):
        return normalize(x, dims) * per_channel(weight, x) + per_channel(bias, x)

    checks.check_op(
        function,
        [3 * draw.normal(size=shape), *parameters(3)],
        reference,
        dtypes=ALL_FLOATS,
        third=shape == (4, 3),
        layouts=("fortran", "strided"),
    )


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 3, 4)], ids=str)
def test_batch_norm_with_running_statistics(shape):
    mean, var = draw.normal(size=3), draw.uniform(0.5, 2, 3)

    def function(x, weight, bias):
        running = [flow.tensor(v, dtype=x.dtype) for v in (mean, var)]
        return batch_norm(x, *running, weight, bias, eps=EPS)

    def reference(x, weight, bias):
        xhat = (x - per_channel(mean, x)) / np.sqrt(per_channel(var, x) + EPS)
        return xhat * per_channel(weight, x) + per_channel(bias, x)

    checks.check_op(function, [draw.normal(size=shape), *parameters(3)], reference, layouts=("fortran", "strided"))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_without_parameters(training):
    def function(x):
        running = (None, None) if training else (flow.zeros(3, dtype=x.dtype), flow.ones(3, dtype=x.dtype))
        return batch_norm(x, *running, training=training, eps=EPS)

    def reference(x):
        return normalize(x, (0, 2)) if training else x / np.sqrt(1 + EPS)

    checks.check_op(function, [draw.normal(size=(4, 3, 2))], reference, layouts=("strided",))


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 7), (3, 3, 1, 300000)], ids=str)
def test_running_statistics_are_updated_in_place(shape):
    x = (5 + draw.normal(size=shape)).astype(np.float32)
    mean, var = flow.full((3,), 2.0), flow.full((3,), 3.0)
    seen = mean[:]  # a view
    batch_norm(flow.tensor(x, requires_grad=True), mean, var, training=True, momentum=0.3)
    dims = (0, *range(2, x.ndim))
    wide = x.astype(np.float64)
    checks.assert_close(mean, (0.7 * 2 + 0.3 * wide.mean(dims)).astype(np.float32))
    checks.assert_close(var, (0.7 * 3 + 0.3 * wide.var(dims, ddof=1)).astype(np.float32))
    checks.assert_same(seen, mean)
    assert not mean.requires_grad and not var.requires_grad


def test_running_statistics_stay_outside_of_training():
    mean, var = flow.full((3,), 2.0), flow.full((3,), 3.0)
    batch_norm(flow.tensor(draw.normal(size=(5, 3)), dtype=flow.float32), mean, var)
    checks.assert_same(mean, np.full(3, 2, np.float32))
    checks.assert_same(var, np.full(3, 3, np.float32))


def test_batch_norm_far_from_zero():
    """Two passes: the variance of values around 1e4 is not lost to cancellation."""
    x = (1e4 + draw.normal(size=(64, 2, 50))).astype(np.float32)
    y = batch_norm(flow.tensor(x), None, None, training=True)
    checks.assert_close(y, normalize(x.astype(np.float64), (0, 2), 1e-5).astype(np.float32), atol=2e-3)


def test_zero_size():
    weight, bias, mean, var = (checks.on_device(np.full(3, v, np.float32)) for v in (1, 2, 3, 4))
    weight.requires_grad_(), bias.requires_grad_()
    for shape, function in [
        ((0, 3), lambda x: layer_norm(x, 3, weight, bias)),
        ((2, 0, 3), lambda x: layer_norm(x, 3, weight, bias)),
        *[
            (shape, lambda x, training=training: batch_norm(x, mean, var, weight, bias, training))
            for shape in ((0, 3), (0, 3, 4, 4), (2, 3, 0))
            for training in (False, True)
        ],
    ]:
        x = checks.on_device(np.empty(shape, np.float32)).requires_grad_()
        y = function(x)
        checks.assert_same(y, np.empty(shape, np.float32))
        dx, dweight, dbias = flow.autograd.grad(y.sum(), [x, weight, bias])
        checks.assert_same(dx, np.empty(shape, np.float32))
        for gradient in (dweight, dbias):
            checks.assert_same(gradient, np.zeros(3, np.float32))
    for statistic, before in ((mean, 3), (var, 4)):
        checks.assert_same(statistic, np.full(3, before, np.float32))


def test_half_precision_input_with_float32_parameters():
    x = draw.normal(size=(4, 3)).astype(np.float16)
    weight = flow.ones(3, requires_grad=True)
    for function in (
        lambda x: layer_norm(x, 3, weight, eps=EPS),
        lambda x: batch_norm(x, flow.zeros(3), flow.ones(3), weight, training=True, eps=EPS),
    ):
        tensor = flow.tensor(x, requires_grad=True)
        y = function(tensor)
        assert y.dtype is flow.float16
        weight.grad = None
        y.backward(flow.tensor(np.ones_like(x)))
        assert tensor.grad.dtype is flow.float16 and weight.grad.dtype is flow.float32
    checks.assert_close(y, normalize(x.astype(np.float64), 0).astype(np.float16))


def test_layer_norm_errors():
    x = flow.zeros(2, 3)
    with pytest.raises(
        ShapeError, match=r"layer_norm: got input \(2, 3\) and normalized_shape \(4,\); expected input \(\*, 4\)"
    ):
        layer_norm(x, 4)
    with pytest.raises(ShapeError, match=r"layer_norm: got input \(2, 3\) and normalized_shape \(\)"):
        layer_norm(x, ())
    with pytest.raises(ShapeError, match=r"layer_norm: got weight \(2,\) for input \(2, 3\); expected \(3,\)"):
        layer_norm(x, 3, flow.ones(2))
    with pytest.raises(
        DTypeError, match="layer_norm: got bias of float64 for input of float32; expected the same dtype"
    ):
        layer_norm(x, 3, None, flow.zeros(3, dtype=flow.float64))
    with pytest.raises(DTypeError, match="layer_norm: got int64; expected a floating dtype: use x.float"):
        layer_norm(flow.tensor([[1, 2]]), 2)


def test_batch_norm_errors():
    x = flow.zeros(2, 3)
    with pytest.raises(
        ShapeError, match=r"batch_norm: got input \(3,\); expected \(N, C\) or \(N, C, ...\): use unsqueeze"
    ):
        batch_norm(flow.zeros(3), None, None, training=True)
    with pytest.raises(ShapeError, match=r"batch_norm: got one value per channel in input \(1, 3\); expected more"):
        batch_norm(flow.zeros(1, 3), None, None, training=True)
    with pytest.raises(ArgumentError, match="batch_norm: got no running statistics; expected both, or training=True"):
        batch_norm(x, None, None)
    with pytest.raises(ShapeError, match=r"batch_norm: got running_mean \(2,\) for input \(2, 3\); expected \(3,\)"):
        batch_norm(x, flow.zeros(2), flow.ones(3))
    with pytest.raises(ShapeError, match=r"batch_norm: got running statistics \(2,\); expected \(3,\)"):
        batch_norm(x, flow.zeros(2), flow.ones(3), training=True)
    with pytest.raises(ShapeError, match=r"batch_norm: got bias \(4,\) for input \(2, 3\); expected \(3,\)"):
        batch_norm(x, None, None, None, flow.ones(4), training=True)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda f, x: f.group_norm(x, 4), "group_norm: got input .2, 6, 3. and num_groups=4"),
        (lambda f, x: f.group_norm(x, 2, flow.ones(2)), "group_norm: got weight"),
        (lambda f, x: f.layer_norm(x, 3, flow.ones(6, 1)), r"layer_norm: got weight .6, 1. .*; expected .3,."),
        (lambda f, x: f.layer_norm(x, 3, flow.ones(3), flow.ones(6, 1)), r"layer_norm: got bias .6, 1."),
        (lambda f, x: f.instance_norm(x[:, :, 0]), "instance_norm: got input .2, 6."),
        (lambda f, x: f.rms_norm(x, 4), "rms_norm: got input .2, 6, 3.; expected .*4"),
        (lambda f, x: f.local_response_norm(x[0], 2), "local_response_norm: got input .6, 3."),
        (lambda f, x: flow.nn.InstanceNorm2d(5)(x), "InstanceNorm2d: got shape .2, 6, 3."),
    ],
)
def test_shapes_that_other_norms_refuse(call, message):
    with pytest.raises(ShapeError, match=message):
        call(flow.nn.functional, flow.ones(2, 6, 3))


def test_group_norm_of_no_samples():
    checks.assert_close(flow.nn.functional.group_norm(flow.ones(0, 4, 3), 2, flow.ones(4)), np.ones((0, 4, 3), "f"))


def test_group_norm_of_no_pixels():
    weight, bias = (flow.ones(6).requires_grad_() for _ in range(2))
    used = [flow.full((6,), 7.0) for _ in range(20)]
    del used  # new arrays are where these were: nothing is 0 by chance
    y = flow.nn.functional.group_norm(flow.ones(2, 6, 0), 3, weight, bias)
    y.sum().backward()
    checks.assert_close(weight.grad, np.zeros(6, "f"))
    checks.assert_close(bias.grad, np.zeros(6, "f"))
