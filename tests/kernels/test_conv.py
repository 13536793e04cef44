"""Convolution and its gradients against the definition in float64: implicit products, direct loops, and the backend."""

import itertools
from math import prod

import numpy as np
import pytest
from both import on_device, run_kernel
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, ON_HOST, Case, compile_case, run_checked, spilled

from miniflow.backends.cuda import conv as backend
from miniflow.kernels import conv, conv_depthwise, matmul

pytestmark = pytest.mark.filterwarnings("ignore:argument . is a NumPy array")
draw = np.random.default_rng(0)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


def nans(*shape, kind=np.float32):
    return np.full(shape, np.nan, kind)


def definition(x, weight, stride, padding, dilation, groups):
    """For each group and tap: its channels, its outputs, the tap, the pixels that it sees, the size of the result."""
    o, inner, kh, kw = weight
    height, width = (n + sum(p) for n, p in zip(x[2:], padding, strict=True))
    oh = (height - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    for g, a, b in itertools.product(range(groups), range(kh), range(kw)):
        rows = slice(a * dilation[0], a * dilation[0] + (oh - 1) * stride[0] + 1, stride[0])
        columns = slice(b * dilation[1], b * dilation[1] + (ow - 1) * stride[1] + 1, stride[1])
        channels, outputs = slice(g * inner, (g + 1) * inner), slice(g * (o // groups), (g + 1) * (o // groups))
        yield channels, outputs, (a, b), (rows, columns), (oh, ow)


def numpy_all(x, weight, dy_seed, **attrs):
    """y, dy, dx and dweight in float64."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    padding = attrs["padding"]
    padded = np.pad(x, [(0, 0), (0, 0), *padding])
    counts = next(definition(x.shape, weight.shape, **attrs))[-1]
    y, dweight = np.zeros((len(x), len(weight), *counts)), np.zeros_like(weight)
    dy = np.random.default_rng(dy_seed).standard_normal(y.shape).astype(np.float32)
    dpadded = np.zeros_like(padded)
    for channels, outputs, tap, pixels, _ in definition(x.shape, weight.shape, **attrs):
        taps, seen = (outputs, slice(None), *tap), (slice(None), channels, *pixels)
        y[:, outputs] += np.einsum("nchw,oc->nohw", padded[seen], weight[taps])
        dpadded[seen] += np.einsum("nohw,oc->nchw", dy[:, outputs], weight[taps])
        dweight[taps] = np.einsum("nohw,nchw->oc", dy[:, outputs].astype(np.float64), padded[seen])
    (top, _), (left, _) = padding
    return y, dy, dpadded[:, :, top : top + x.shape[2], left : left + x.shape[3]], dweight


def attributes(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    return {
        "stride": stride,
        "padding": tuple(p if isinstance(p, tuple) else (p, p) for p in padding),
        "dilation": dilation,
        "groups": groups,
    }


SHAPES = {
    "plain": ((2, 3, 5, 6), (4, 3, 3, 3), {}),
    "padded": ((2, 3, 5, 4), (2, 3, 3, 2), {"padding": (1, 2)}),
    "uneven border": ((2, 2, 5, 4), (3, 2, 4, 3), {"padding": ((1, 2), (1, 1))}),
    "strided": ((2, 2, 7, 6), (3, 2, 3, 3), {"stride": (2, 3), "padding": (1, 1)}),
    "dilated": ((1, 2, 7, 8), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (1, 1)}),
    "strided, rest unseen": ((1, 2, 8, 9), (2, 2, 3, 3), {"stride": (3, 3)}),
    "strided and dilated alike": (
        (1, 3, 9, 8), (3, 3, 3, 3), {"stride": (2, 4), "dilation": (2, 2), "padding": (1, 1)}),
    "stride beyond the kernel": ((2, 3, 5, 4), (2, 3, 1, 1), {"stride": (2, 3)}),
    "stride beyond the image": ((2, 3, 2, 3), (2, 3, 2, 2), {"stride": (5, 4)}),
    "no image": ((0, 2, 4, 4), (3, 2, 3, 3), {"padding": (1, 1)}),
    "one window": ((3, 2, 3, 2), (4, 2, 3, 2), {}),
    "groups": ((2, 18, 5, 4), (6, 9, 3, 3), {"padding": (1, 1), "groups": 2}),
    "groups, strided": ((2, 18, 6, 5), (2, 9, 3, 2), {"padding": (1, 1), "stride": (2, 2), "groups": 2}),
    "narrow groups": ((2, 4, 5, 4), (6, 2, 3, 3), {"padding": (1, 1), "groups": 2}),
    "depthwise": ((2, 3, 12, 13), (3, 1, 3, 3), {"padding": (1, 1), "groups": 3}),
    "depthwise, strided, dilated": (
        (2, 3, 7, 8), (6, 1, 3, 3), {"stride": (2, 2), "padding": (1, 1), "dilation": (2, 3), "groups": 3}),
    "more than a tile of pixels, channels and taps": ((2, 9, 9, 8), (65, 9, 3, 3), {"padding": (1, 1)}),
    "a tile of pixels and channels": ((1, 4, 8, 8), (64, 4, 2, 2), {"padding": ((0, 1), (0, 1))}),
    "several parts": ((5, 1, 17, 16), (2, 1, 2, 3), {}),
}  # fmt: skip


def rounding(terms):
    """What float32 sums of so many products of standard normal numbers may be off, in whatever order they are added."""
    return {"atol": 2 * terms * np.finfo(np.float32).eps}


@pytest.mark.parametrize("name", SHAPES)
def test_all_three(name):
    shape, weight_shape, options = SHAPES[name]
    attrs = attributes(**options)
    x, weight, bias = numbers(*shape), numbers(*weight_shape), numbers(weight_shape[0])
    y, dy, dx, dweight = numpy_all(x, weight, 1, **attrs)
    x, weight, bias, cotangent = (on_device(a) for a in (x, weight, bias, dy))
    taps, outputs = prod(weight_shape[1:]), weight_shape[0] // attrs["groups"]
    got = run_kernel("cuda", "Conv2d", x, weight, None, **attrs).numpy()
    assert_close(got, y.astype(np.float32), **rounding(taps))
    got = run_kernel("cuda", "Conv2d", x, weight, bias, **attrs).numpy()
    assert_close(got, (y + bias.numpy()[:, None, None]).astype(np.float32), **rounding(taps + 1))
    got = run_kernel("cuda", "Conv2dDataGrad", cotangent, weight, size=shape[2:], **attrs).numpy()
    assert_close(got, dx.astype(np.float32), **rounding(outputs * prod(weight_shape[2:])))
    got = run_kernel("cuda", "Conv2dWeightGrad", cotangent, x, size=weight_shape[2:], **attrs).numpy()
    assert_close(got, dweight.astype(np.float32), **rounding(dy.size // dy.shape[1]))


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed"])
@pytest.mark.parametrize("name", ["padded", "depthwise"])
def test_layouts(name, layout):
    shape, weight_shape, options = SHAPES[name]
    attrs = attributes(**options)
    x, weight = numbers(*shape, kind=np.float64), numbers(*weight_shape, kind=np.float64)
    y, dy, dx, dweight = numpy_all(x, weight, 2, **attrs)
    x, weight, cotangent = (on_device(a, layout) for a in (x, weight, dy.astype(np.float64)))
    assert_close(run_kernel("cuda", "Conv2d", x, weight, None, **attrs).numpy(), y)
    assert_close(run_kernel("cuda", "Conv2dDataGrad", cotangent, weight, size=shape[2:], **attrs).numpy(), dx)
    assert_close(run_kernel("cuda", "Conv2dWeightGrad", cotangent, x, size=weight_shape[2:], **attrs).numpy(), dweight)


def test_more_images_than_a_grid_numbers(monkeypatch):
    monkeypatch.setattr("miniflow.backends.cuda.launch.GRID_LIMIT", 2)
    attrs = attributes(padding=(1, 1), groups=3)
    x, weight = numbers(5, 3, 4, 5), numbers(3, 1, 3, 3)
    y, *_ = numpy_all(x, weight, 3, **attrs)
    got = run_kernel("cuda", "Conv2d", on_device(x), on_device(weight), None, **attrs).numpy()
    assert_close(got, y.astype(np.float32), atol=1e-5)


@pytest.mark.parametrize(
    "kernel, stride, padding, dilation", list(itertools.product((1, 2, 3, 5), (1, 2, 3), (0, 1), (1, 2, 3)))
)
def test_classes_cover_every_tap_once(kernel, stride, padding, dilation):
    """Along one dim: h = i * stride - padding + a * dilation for the same (h, i, a), by class or not."""
    rows = range(12)
    seen = {
        (h, i, a)
        for i in range(-20, 40)
        for a in range(kernel)
        for h in rows
        if h == i * stride - padding + a * dilation
    }
    found = []
    for c in backend._classes(kernel, stride, padding, dilation):
        for u, h in enumerate(rows[c.residue :: stride]):
            found += [(h, u + c.first + t * c.spread, a) for t, a in enumerate(range(kernel)[c.taps])]
    assert len(found) == len(set(found)) and set(found) == seen


def test_parts_of_the_weight_gradient():
    for pixels, blocks in ((0, 1), (1, 1), (100, 1), (12_544, 13), (50_176, 1), (10**6, 500)):
        count = backend._pixels_of_a_part(pixels, blocks)
        assert count > 0 and count % conv.DEPTH == 0
        assert -(-pixels // count) * blocks <= max(backend.BLOCKS, blocks)


def test_add_parts():
    parts, total = numbers(3, 257), nans(257)
    conv.add_parts[2, 256](parts, total)
    assert_same(total, parts[0] + parts[1] + parts[2])


@pytest.mark.skipif(not ON_HOST, reason="accesses are counted by the checked executor, which belongs to the host")
def test_what_a_block_reads():
    """At most 2 K / 64 global reads for each output: fewer where taps lie off the image."""
    from miniflow.hostcuda import check

    side = conv.SIDE
    geometry = (3, 3), (1, 1), (-1, -1), (1, 1)  # 36 taps of windows, 64 pixels
    x, weight, y = numbers(1, 1, 4, 8, 8), numbers(1, side, 36), nans(1, 1, side, 8, 8)
    arguments = [x, weight, np.empty(0, np.float32), y, *geometry]
    total = check.launch(conv.convolve, arguments, 1, matmul.THREADS, 0, profile=True).total
    assert 0.9 * 2 * 36 / side < total.global_loads / y.size < 2 * 36 / side
    assert total.worst_conflict <= 2
    dy, parts = numbers(1, 1, side, 64), nans(1, 1, side, 36)
    arguments = [dy, x, parts, 64, 8, *geometry]
    total = check.launch(conv.weight_gradient, arguments, 1, matmul.THREADS, 0, profile=True).total
    assert total.global_loads <= 64 * side + 64 * 36  # dy and the gathered x, each once
    assert total.worst_conflict <= 2


PAIRS = (2, 1), (-1, 0), (1, 2)  # step, first, spread
CASES = [
    Case(
        "convolve",
        conv.convolve,
        lambda: [numbers(2, 2, 2, 5, 4), numbers(2, 3, 8), numbers(6), nans(2, 2, 3, 3, 2), (2, 2), *PAIRS],
        (1, 1, 2),
        matmul.THREADS,
    ),
    Case(
        "convolve, taps in reverse",
        conv.convolve,
        lambda: [
            numbers(1, 1, 2, 3, 4),
            numbers(1, 3, 8),
            np.empty(0, np.float32),
            nans(1, 1, 3, 2, 3),
            (2, 2),
            (1, 1),
            (0, 1),
            (-1, -1),
        ],
        1,
        matmul.THREADS,
    ),
    Case(
        "weight_gradient",
        conv.weight_gradient,
        lambda: [numbers(3, 1, 3, 12), numbers(3, 1, 2, 8, 3), nans(2, 1, 3, 8), 32, 3, (2, 2), *PAIRS],
        (1, 1, 2),
        matmul.THREADS,
    ),
    Case("add_parts", conv.add_parts, lambda: [numbers(3, 70), nans(70)], 2, 64),
    Case(
        "direct",
        conv_depthwise.direct,
        lambda: [numbers(2, 3, 1, 5, 4), numbers(3, 2, 1, 2, 2), numbers(6), nans(2, 3, 2, 3, 2), *PAIRS],
        (1, 6, 2),
        32,
    ),
    Case(
        "direct_weight_gradient",
        conv_depthwise.direct_weight_gradient,
        lambda: [numbers(2, 3, 2, 3, 2), numbers(2, 3, 1, 5, 4), nans(3, 2, 1, 2, 2), *PAIRS],
        (6, 2, 2),
        conv_depthwise.THREADS,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert spilled(compile_case(case, cc)) == []  # sums are in registers
