"""Convolution against torch."""

import numpy as np
import pytest
from checks import assert_close, check_against_torch
from hypothesis import given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.convolution import conv2d

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

RNG = np.random.default_rng(9)
BOTH = st.integers(1, 3)


@st.composite
def convolutions(draw):
    """(input, weight, stride, padding, dilation, groups) with any of them odd, as torch accepts them."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inner, outer = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    stride, dilation = draw(st.tuples(BOTH, BOTH)), draw(st.tuples(BOTH, BOTH))
    padding = draw(st.one_of(st.just("valid"), st.just("same"), st.tuples(st.integers(0, 4), st.integers(0, 4))))
    if padding == "same":
        stride = (1, 1)
    size = [d * (k - 1) + 1 + draw(st.integers(0, 9)) for k, d in zip(kernel, dilation, strict=True)]
    image = (draw(st.integers(1, 4)), inner * groups, *size)
    return image, (outer * groups, inner, *kernel), stride, padding, dilation, groups


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch copies the image then
@settings(max_examples=60, deadline=None, derandomize=True)
@given(convolutions())
def test_any_convolution(case):
    image, weight, *options = case
    inputs = [RNG.standard_normal(image), RNG.standard_normal(weight), RNG.standard_normal(weight[0])]
    check_against_torch(
        lambda x, w, b: conv2d(x, w, b, *options),
        lambda x, w, b: torch.nn.functional.conv2d(x, w, b, *options),
        inputs,
        dtype="float64",
        atol=1e-10,
    )


# batch, channels, size, outputs, kernel, stride, padding, groups: layers of LeNet, of ResNets and of their kin
LAYERS = {
    "LeNet 1": (8, 1, 28, 32, 5, 1, 2, 1),
    "LeNet 2": (8, 32, 14, 64, 5, 1, 2, 1),
    "ResNet 3x3": (3, 64, 16, 64, 3, 1, 1, 1),
    "ResNet 3x3, small map": (4, 128, 4, 128, 3, 1, 1, 1),
    "ResNet down": (3, 32, 16, 64, 3, 2, 1, 1),
    "ResNet shortcut": (3, 32, 32, 64, 1, 2, 0, 1),
    "stem": (2, 3, 40, 16, 7, 2, 3, 1),
    "bottleneck": (3, 64, 14, 32, 1, 1, 0, 1),
    "depthwise": (3, 32, 17, 32, 3, 1, 1, 32),
    "depthwise, a border wider than the kernel reaches": (2, 8, 9, 8, 3, 1, (3, 1), 8),
    "grouped": (2, 64, 14, 64, 3, 1, 1, 16),
    "wide groups": (2, 64, 14, 96, 3, 1, 1, 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    n, c, size, o, k, *options, groups = LAYERS[name]
    x, weight = RNG.standard_normal((n, c, size, size)), RNG.standard_normal((o, c // groups, k, k))
    weight /= np.sqrt(weight[0].size)
    stride, padding = options
    check_against_torch(
        lambda x, w, b: conv2d(x, w, b, stride, padding, 1, groups),
        lambda x, w, b: torch.nn.functional.conv2d(x, w, b, stride, padding, 1, groups),
        [x, weight, RNG.standard_normal(o)],
        rtol=1e-4,
        atol=1e-3 if size > 8 else 1e-4,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half(dtype):
    kind = getattr(torch, dtype)
    x, weight = RNG.standard_normal((2, 4, 9, 8)), RNG.standard_normal((3, 4, 3, 3)) / 6
    ours = [flow.tensor(a.astype(np.float32)).to(getattr(flow, dtype)) for a in (x, weight)]
    theirs = [torch.from_numpy(a.astype(np.float32)).to(kind) for a in (x, weight)]
    y = conv2d(*ours, padding=1)
    assert y.dtype is getattr(flow, dtype)
    want = torch.nn.functional.conv2d(*theirs, padding=1).float().numpy()
    assert_close(y.float().numpy(), want, rtol=2e-2, atol=2e-2)


def test_refused_by_both():
    for ours, theirs in [
        (((1, 4, 5, 5), (2, 3, 3, 3)), {}),
        (((1, 2, 2, 5), (3, 2, 3, 3)), {}),
        (((1, 4, 5, 5), (3, 2, 3, 3)), {"groups": 2}),
        (((1, 2, 5, 5), (3, 2, 3, 3)), {"padding": "same", "stride": 2}),
    ]:
        with pytest.raises(ValueError, match="conv2d: got"):
            conv2d(*[flow.ones(*s) for s in ours], **theirs)
        with pytest.raises((RuntimeError, ValueError), match="."):
            torch.nn.functional.conv2d(*[torch.ones(*s) for s in ours], **theirs)


def test_an_output_size_that_a_transposed_convolution_cannot_have():
    layer = flow.nn.ConvTranspose2d(1, 1, 3, stride=2)
    assert layer(flow.ones(1, 1, 2, 2), output_size=(6, 5)).shape == (1, 1, 6, 5)
    with pytest.raises(ShapeError, match=r"ConvTranspose2d: got output_size=\(7, 5\); expected from \(5, 5\)"):
        layer(flow.ones(1, 1, 2, 2), output_size=(7, 5))
    with pytest.raises(
        ArgumentError, match=r"output_padding=\(2, 2\) with stride \(2, 2\) and dilation \(1, 1\); expected less"
    ):
        flow.nn.functional.conv_transpose2d(flow.ones(1, 1, 2, 2), flow.ones(1, 1, 2, 2), None, 2, 0, 2)
