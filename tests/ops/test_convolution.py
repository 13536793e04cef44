"""Convolution: every method of the CPU kernels, gradients of any order, refused operands."""

import numpy as np
import pytest
from checks import assert_close, assert_same, check_op

import miniflow as flow
from miniflow.backends.cpu import conv as kernels
from miniflow.backends.cpu import conv_columns, conv_winograd, matmul, threads
from miniflow.backends.windows import Windows
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.convolution import Conv2d, Conv2dDataGrad, Conv2dWeightGrad, conv2d

RNG = np.random.default_rng(7)
DTYPES = ("float32", "float64", "float16", "bfloat16")


def pair(n):
    return n if isinstance(n, tuple) else (n, n)


def borders(padding, kernel, dilation):
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in totals]
    return [(p, p) for p in pair(0 if padding == "valid" else padding)]


def numpy_conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """The definition: for each tap of the kernel, the pixels that it sees times its weights."""
    (sh, sw), (dh, dw) = pair(stride), pair(dilation)
    o, inner, kh, kw = weight.shape
    x = np.pad(x, [(0, 0), (0, 0), *borders(padding, (kh, kw), (dh, dw))])
    oh = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    ow = (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    y = np.zeros((len(x), o, oh, ow))
    for g in range(groups):
        channels = x[:, g * inner : (g + 1) * inner]
        outputs = slice(g * o // groups, (g + 1) * o // groups)
        for a in range(kh):
            for b in range(kw):
                seen = channels[
                    :, :, a * dh : a * dh + (oh - 1) * sh + 1 : sh, b * dw : b * dw + (ow - 1) * sw + 1 : sw
                ]
                y[:, outputs] += np.einsum("nchw,oc->nohw", seen, weight[outputs, :, a, b])
    return y if bias is None else y + bias[:, None, None]


def operands(x, weight):
    return [RNG.standard_normal(x), RNG.standard_normal(weight), RNG.standard_normal(weight[0])]


# x, weight, and (stride, padding, dilation, groups)
SMALL = {
    "plain": ((2, 3, 5, 6), (4, 3, 3, 3), (1, 0, 1, 1)),
    "padded": ((2, 3, 5, 4), (2, 3, 3, 2), (1, (1, 2), 1, 1)),
    "strided": ((2, 2, 7, 6), (3, 2, 3, 3), ((2, 3), 1, 1, 1)),
    "dilated": ((1, 2, 7, 8), (3, 2, 3, 2), (1, 1, (2, 3), 1)),
    "strided, rest unseen": ((1, 2, 8, 9), (2, 2, 3, 3), (3, 0, 1, 1)),
    "same": ((2, 2, 5, 4), (3, 2, 4, 3), (1, "same", 1, 1)),
    "same, dilated": ((1, 2, 6, 5), (2, 2, 2, 3), (1, "same", (1, 2), 1)),
    "valid": ((1, 2, 5, 4), (3, 2, 2, 3), (1, "valid", 1, 1)),
    "groups": ((2, 4, 5, 4), (6, 2, 3, 3), (1, 1, 1, 2)),
    "groups, strided": ((2, 4, 6, 5), (2, 2, 3, 2), (2, 1, 1, 2)),
    "depthwise": ((2, 3, 5, 6), (3, 1, 3, 3), (1, 1, 1, 3)),
    "depthwise, halved": ((2, 3, 7, 8), (3, 1, 3, 3), (2, (1, 2), 1, 3)),
    "depthwise, strided, dilated": ((2, 3, 7, 8), (6, 1, 3, 3), (2, 1, 2, 3)),
    "pointwise": ((2, 3, 4, 5), (4, 3, 1, 1), (1, 0, 1, 1)),
    "pointwise, one image": ((1, 3, 4, 5), (4, 3, 1, 1), (1, 0, 1, 1)),
    "pointwise, strided": ((2, 3, 5, 4), (2, 3, 1, 1), ((2, 3), 0, 1, 1)),
    "one window": ((3, 2, 3, 2), (4, 2, 3, 2), (1, 0, 1, 1)),
    "no image": ((0, 2, 4, 4), (3, 2, 3, 3), (1, 1, 1, 1)),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", SMALL)
def test_small(name):
    x, weight, options = SMALL[name]
    full = name in ("padded", "groups, strided", "depthwise", "strided")
    check_op(
        lambda x, w, b: conv2d(x, w, b, *options),
        operands(x, weight),
        lambda x, w, b: numpy_conv2d(x, w, b, *options),
        dtypes=DTYPES if full else ("float32", "float64"),
        grad=x[0] > 0,
        gradient="sparse" if name in ("depthwise, strided, dilated", "pointwise, strided") else "dense",
        third=full,
        layouts=("fortran", "strided", "reversed", "expanded") if full else ("strided",),
        rtol=1e-4,
        atol=1e-5,
    )


# large enough for each method, and for groups of images: x, weight, (stride, padding, dilation, groups), the method
LARGE = {
    "batch last": ((70, 1, 6, 7), (5, 1, 3, 3), (1, 1, 1, 1), conv_columns),
    "batch last, strided": ((19, 6, 7, 9), (5, 6, 3, 5), (2, 1, 1, 1), conv_columns),
    "batch last, dilated": ((2, 6, 9, 12), (16, 6, 3, 2), (1, (2, 1), 2, 1), conv_columns),
    "batch last, pointwise": ((33, 6, 7, 5), (5, 6, 1, 1), (1, 0, 1, 1), conv_columns),
    "batch last, pointwise and strided": ((17, 6, 7, 9), (5, 6, 1, 1), (2, 0, 1, 1), conv_columns),
    "one small image": ((1, 6, 7, 9), (5, 6, 3, 3), (1, 1, 1, 1), conv_columns),
    "several images at a time": ((9, 3, 30, 28), (5, 3, 5, 5), (1, 2, 1, 1), conv_columns),
    "columns, strided": ((3, 16, 39, 17), (16, 16, 3, 3), (2, 1, 1, 1), conv_columns),
    "columns, strided, few channels": ((2, 3, 40, 31), (5, 3, 3, 3), (2, 1, 1, 1), conv_columns),
    "columns, rows strided": ((2, 6, 41, 17), (5, 6, 3, 3), ((2, 1), 1, 1, 1), conv_columns),
    "columns, strided and dilated": ((2, 8, 41, 37), (5, 8, 3, 4), ((2, 3), (1, 2), (1, 2), 1), conv_columns),
    "columns, dilated": ((3, 16, 19, 17), (16, 16, 3, 3), (1, 1, 2, 1), conv_columns),
    "columns, wide border": ((3, 16, 9, 9), (16, 16, 3, 3), (1, 3, 1, 1), conv_columns),
    "winograd 3x3": ((5, 16, 13, 14), (32, 16, 3, 3), (1, 1, 1, 1), conv_winograd),
    "winograd 3x3, no border": ((4, 32, 18, 9), (16, 32, 3, 3), (1, 0, 1, 1), conv_winograd),
    "winograd 3x3, uneven border": ((3, 16, 15, 16), (16, 16, 3, 3), (1, (0, 2), 1, 1), conv_winograd),
    "winograd 5x5": ((5, 16, 9, 10), (32, 16, 5, 5), (1, 2, 1, 1), conv_winograd),
    "winograd 5x5, uneven border": ((4, 32, 11, 12), (16, 32, 5, 5), (1, (1, 3), 1, 1), conv_winograd),
    "winograd, groups": ((4, 32, 14, 14), (32, 16, 3, 3), (1, 1, 1, 2), conv_winograd),
    "pointwise": ((3, 5, 16, 17), (4, 5, 1, 1), (1, 0, 1, 1), conv_columns),
    "pointwise, strided": ((3, 5, 40, 29), (4, 5, 1, 1), (2, 0, 1, 1), conv_columns),
    "narrow groups": ((3, 12, 16, 17), (24, 3, 3, 3), (1, 1, 1, 4), None),
    "narrow groups, odd": ((2, 6, 23, 19), (9, 2, 4, 5), ((2, 3), (1, 2), (1, 2), 3), None),
    "narrow groups, rows in parts": ((1, 8, 50, 120), (6, 4, 3, 3), (1, 1, 1, 2), None),
    "narrow groups, phases without taps": ((2, 4, 20, 21), (8, 2, 2, 3), ((3, 2), 0, (1, 2), 2), None),
    "depthwise, wide border": ((2, 4, 9, 10), (4, 1, 3, 3), (1, (4, 3), 1, 4), None),
    "depthwise": ((3, 24, 40, 41), (24, 1, 5, 5), (1, 2, 1, 24), None),
    "depthwise, rows in parts": ((2, 3, 70, 90), (3, 1, 3, 3), (1, 1, 1, 3), None),
    "depthwise, rows in parts, halved": ((2, 3, 140, 180), (3, 1, 3, 3), (2, 1, 1, 3), None),
    "depthwise, border wider than the image": ((2, 4, 1, 3), (4, 1, 1, 9), (1, (0, 4), 1, 4), None),
    "depthwise, halved 3x3": ((3, 6, 41, 37), (6, 1, 3, 3), (2, (0, 1), 1, 6), None),
    "depthwise, halved 5x5": ((2, 6, 21, 40), (6, 1, 5, 5), (2, (3, 4), 1, 6), None),
}


def numpy_gradients(dy, x, weight, stride, padding, dilation, groups):
    """dx and dweight, since the convolution is linear in each: they meet <dy, conv(e, w)> and <dy, conv(x, e)>."""
    (sh, sw), (dh, dw) = pair(stride), pair(dilation)
    o, inner, kh, kw = weight.shape
    (top, _), (left, _) = edges = borders(padding, (kh, kw), (dh, dw))
    padded = np.pad(x, [(0, 0), (0, 0), *edges])
    dx, dweight = np.zeros_like(padded), np.zeros_like(weight)
    rows, columns = (dy.shape[2] - 1) * sh + 1, (dy.shape[3] - 1) * sw + 1
    for g in range(groups):
        channels, outputs = slice(g * inner, (g + 1) * inner), slice(g * o // groups, (g + 1) * o // groups)
        for a in range(kh):
            for b in range(kw):
                seen = (slice(None), channels, slice(a * dh, a * dh + rows, sh), slice(b * dw, b * dw + columns, sw))
                dx[seen] += np.einsum("nohw,oc->nchw", dy[:, outputs], weight[outputs, :, a, b])
                dweight[outputs, :, a, b] = np.einsum("nohw,nchw->oc", dy[:, outputs], padded[seen])
    return dx[:, :, top : top + x.shape[2], left : left + x.shape[3]], dweight


@pytest.mark.few(4)
@pytest.mark.parametrize("threads_used", [1, 2])
@pytest.mark.parametrize("name", LARGE)
def test_every_method(name, threads_used, monkeypatch):
    shape, weight_shape, options, method = LARGE[name]
    stride, padding, dilation, groups = options
    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: threads_used)
    monkeypatch.setattr(threads, "SHARED_FROM", 1)
    if threads_used > 1:
        monkeypatch.setattr(matmul, "SERIAL_PRODUCT", 20_000)  # products are cut into parts of their columns
    x, weight, bias = (a.astype(np.float32) for a in operands(shape, weight_shape))
    windows = Windows(weight_shape[2:], pair(stride), tuple((p, p) for p in pair(padding)), pair(dilation))
    if method is None:
        assert kernels.few_channels(weight_shape, groups)
    else:
        one_group = (shape[0], shape[1] // groups, *shape[2:]), (weight_shape[0] // groups, *weight_shape[1:])
        assert conv_winograd.suits(*one_group, windows, x.dtype) == (method is conv_winograd)
    inputs = [flow.tensor(a).requires_grad_() for a in (x, weight, bias)]
    y = conv2d(*inputs, *options)
    dy = RNG.standard_normal(tuple(y.shape)).astype(np.float32)
    wide = [a.astype(np.float64) for a in (dy, x, weight, bias)]
    expected = (
        numpy_conv2d(*wide[1:], *options),
        *numpy_gradients(*wide[:3], *options),
        wide[0].sum((0, 2, 3)),
    )
    got = (y.detach(), *flow.autograd.grad(y, inputs, flow.tensor(dy)))
    for what, a, b in zip(("y", "dx", "dweight", "dbias"), got, expected, strict=True):
        assert_close(
            a.cpu().numpy(), b.astype(np.float32), rtol=1e-4, atol=2e-5 * np.abs(b).max(), what=f"{what}, {name}"
        )


@pytest.mark.parametrize("kernel", [3, 5])
def test_winograd_is_accurate(kernel):
    """Errors stay near those of a direct sum in float32, also far from 1: the method is linear."""
    x, weight = RNG.standard_normal((4, 64, 20, 20)) * 1e4, RNG.standard_normal((32, 64, kernel, kernel)) * 1e-3
    x, weight = x.astype(np.float32), weight.astype(np.float32)
    windows = Windows((kernel, kernel), (1, 1), ((1, 1), (1, 1)), (1, 1))
    assert conv_winograd.suits(x.shape, weight.shape, windows, x.dtype)
    exact = numpy_conv2d(x.astype(np.float64), weight.astype(np.float64), padding=1)
    y = np.full(exact.shape, np.nan, np.float32)
    conv_winograd.forward(x, weight, windows, y)
    error = np.abs(y - exact).max() / exact.std()
    assert error < 3e-5


def test_narrow_outputs_of_a_buffer_filled_with_nan(monkeypatch):
    """Every element of a result is written: buffers that start as NaN change nothing."""
    empty = np.empty

    def filled(shape, dtype=float, *args, **kwargs):
        array = empty(shape, dtype, *args, **kwargs)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    for shape, weight_shape, (stride, padding, dilation, groups), _ in LARGE.values():
        x, weight, _ = (a.astype(np.float32) for a in operands(shape, weight_shape))
        attrs = {
            "stride": pair(stride),
            "padding": tuple((p, p) for p in pair(padding)),
            "dilation": pair(dilation),
            "groups": groups,
        }
        forward, data_grad, weight_grad = (kernel_on(op, "cpu") for op in (Conv2d, Conv2dDataGrad, Conv2dWeightGrad))
        plain = [forward(x, weight, None, **attrs)]
        plain.append(data_grad(plain[0], weight, size=shape[2:], **attrs))
        plain.append(weight_grad(plain[0], x, size=weight_shape[2:], **attrs))
        with monkeypatch.context() as patch:
            patch.setattr(np, "empty", filled)
            again = [
                forward(x, weight, None, **attrs),
                data_grad(plain[0], weight, size=shape[2:], **attrs),
                weight_grad(plain[0], x, size=weight_shape[2:], **attrs),
            ]
        for a, b in zip(again, plain, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize(("weight_shape", "stride"), [((4, 1, 3, 3), 1), ((6, 2, 3, 5), (1, 2))])
def test_only_those_that_see_a_nan_become_nan(weight_shape, stride):
    """In loops over whole planes other windows meet pixels too, and zeros times NaN: neither may come through."""
    x, weight = (a.astype(np.float32) for a in operands((2, 4, 7, 9), weight_shape)[:2])
    options = (stride, 1, 1, 4 // weight_shape[1])
    dy = RNG.standard_normal(numpy_conv2d(x, weight, None, *options).shape).astype(np.float32)
    x[1, 2, 3, 0], x[0, 1, 0, 8], dy[0, 0, 2, 2] = np.nan, np.inf, np.nan
    inputs = [flow.tensor(a).requires_grad_() for a in (x, weight)]
    y = conv2d(inputs[0], inputs[1], None, *options)
    expected = (numpy_conv2d(x, weight, None, *options), *numpy_gradients(dy, x, weight, *options))
    for got, wanted in zip((y.detach(), *flow.autograd.grad(y, inputs, flow.tensor(dy))), expected, strict=True):
        assert 0 < np.isfinite(wanted).sum() < wanted.size
        np.testing.assert_allclose(got.cpu().numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_one_image():
    x, weight, bias = operands((3, 5, 6), (2, 3, 3, 3))
    check_op(
        lambda x, w, b: conv2d(x, w, b, 2, 1),
        [x, weight, bias],
        lambda x, w, b: numpy_conv2d(x[None], w, b, 2, 1)[0],
        layouts=(),
    )


@pytest.mark.cpu_only("the images lie in memory of NumPy")
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_images_that_cannot_be_written(groups):
    images = np.random.default_rng(0).standard_normal((2, 4, 5, 6), np.float32)
    weight = flow.tensor(np.random.default_rng(1).standard_normal((4, 4 // groups, 3, 3), np.float32))
    expected = conv2d(flow.tensor(images), weight, groups=groups).numpy()
    images.setflags(write=False)
    weight.requires_grad = True
    result = conv2d(flow.from_numpy(images), weight, groups=groups)
    np.testing.assert_array_equal(result.detach().numpy(), expected)
    result.sum().backward()
    assert weight.grad.abs().min().item() > 0


def test_no_bias():
    x, weight, _ = operands((2, 3, 5, 6), (2, 3, 3, 3))
    check_op(conv2d, [x, weight], numpy_conv2d, third=True, layouts=("strided",))


def test_only_what_is_needed_is_kept_and_computed():
    x, weight = flow.ones(1, 2, 5, 5), flow.ones(3, 2, 3, 3).requires_grad_()
    y = conv2d(x, weight)
    flow.autograd.backward(y, flow.ones(*y.shape))
    assert x.grad is None
    assert_same(weight.grad.cpu().numpy(), np.full((3, 2, 3, 3), 9, np.float32))


REFUSED = {
    "channels": (((1, 4, 5, 5), (2, 3, 3, 3)), {}, ShapeError, "conv2d: .*expected 3 input channels, 3 for each group"),
    "groups?": (((1, 6, 5, 5), (4, 3, 3, 3)), {}, ShapeError, "did you mean groups=2?"),
    "groups": (((1, 4, 5, 5), (3, 2, 3, 3)), {"groups": 2}, ShapeError, "groups to divide the 3 output channels"),
    "ndim": (((4, 5), (3, 2, 3, 3)), {}, ShapeError, r"got input \(4, 5\); expected \(N, C, H, W\)"),
    "weight": (((1, 2, 5, 5), (3, 2, 3)), {}, ShapeError, r"got weight .3, 2, 3.; expected 4 dims"),
    "small": (((1, 2, 2, 5), (3, 2, 3, 3)), {}, ShapeError, "at least as large as the kernel: pad more"),
    "stride": (
        ((1, 2, 5, 5), (3, 2, 3, 3)),
        {"stride": 0},
        ArgumentError,
        "got stride=0; expected one or two integers",
    ),
    "strides": (((1, 2, 5, 5), (3, 2, 3, 3)), {"stride": (1, 1, 1)}, ArgumentError, r"got stride=\(1, 1, 1\)"),
    "padding": (((1, 2, 5, 5), (3, 2, 3, 3)), {"padding": -1}, ArgumentError, "integers of at least 0"),
    "word": (((1, 2, 5, 5), (3, 2, 3, 3)), {"padding": "full"}, ArgumentError, "expected 'same', 'valid'"),
    "same": (((1, 2, 5, 5), (3, 2, 3, 3)), {"padding": "same", "stride": 2}, ArgumentError, "expected stride 1"),
    "no groups": (((1, 2, 5, 5), (3, 2, 3, 3)), {"groups": 0}, ArgumentError, "integer of at least 1"),
    "dilation": (((1, 2, 5, 5), (3, 2, 3, 3)), {"dilation": 1.5}, DTypeError, "expected an integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    (x, weight), options, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        conv2d(flow.ones(*x), flow.ones(*weight), **options)


def test_refused_bias_and_dtypes():
    x, weight = flow.ones(1, 2, 5, 5), flow.ones(3, 2, 3, 3)
    with pytest.raises(ShapeError, match=r"bias of shape \(2,\); expected \(3,\), one for each output channel"):
        conv2d(x, weight, flow.ones(2))
    with pytest.raises(DTypeError, match="got dtypes float32, float64; expected one: cast"):
        conv2d(x, weight.double())
    with pytest.raises(DTypeError, match="got int64; expected a floating dtype"):
        conv2d(x.long(), weight.long())


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose2d"])
@pytest.mark.parametrize("option", ["stride", "dilation", "padding"])
def test_numbers_that_fit_no_image_are_refused(name, option):
    x = flow.ones(1, 1, *(4,) * int(name[-2]))
    with pytest.raises(ArgumentError, match=rf"{name}: got {option}={2**62}; expected .* below 2\*\*31"):
        getattr(flow.nn.functional, name)(x, x, **{option: 2**62})
