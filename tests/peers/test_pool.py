"""Pooling against torch."""

import numpy as np
import pytest
from checks import assert_same, check_against_torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

PEER = torch.nn.functional
RNG = np.random.default_rng(10)


@st.composite
def poolings(draw, dilated):
    """(image, kernel, stride, padding, dilation, ceil_mode); torch may refuse some."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) if dilated else (1, 1)
    stride = draw(st.one_of(st.none(), st.tuples(st.integers(1, 5), st.integers(1, 5))))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    image = (draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 11)), draw(st.integers(1, 11)))
    return image, kernel, stride, padding, dilation, draw(st.booleans())


def refused_by_both(ours, theirs):
    """Whether torch refuses; then ours has to, too."""
    try:
        theirs()
    except RuntimeError:
        with pytest.raises((ShapeError, ArgumentError)):
            ours()
        return True
    return False


@settings(max_examples=80, deadline=None, derandomize=True)
@given(poolings(dilated=True))
def test_any_max_pool2d(case):
    image, *options = case
    assume(min(image[2:]) > 1)  # a dilated window may miss a single row altogether: torch's index then lies outside
    x = RNG.permutation(np.arange(np.prod(image), dtype=np.float64)).reshape(image)
    both = (
        lambda x: max_pool2d(x, *options, return_indices=True),
        lambda x: PEER.max_pool2d(x, *options, return_indices=True),
    )
    if not refused_by_both(lambda: both[0](flow.tensor(x)), lambda: both[1](torch.from_numpy(x))):
        check_against_torch(*both, [x], dtype="float64")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(poolings(dilated=False), st.booleans(), st.sampled_from([None, None, 3]))
def test_any_avg_pool2d(case, include, divisor):
    image, kernel, stride, padding, _, ceil_mode = case
    x = RNG.standard_normal(image)
    options = (kernel, stride, padding, ceil_mode, include, divisor)
    both = (lambda x: avg_pool2d(x, *options), lambda x: PEER.avg_pool2d(x, *options))
    if not refused_by_both(lambda: both[0](flow.tensor(x)), lambda: both[1](torch.from_numpy(x))):
        check_against_torch(*both, [x], dtype="float64")


SIZES = st.integers(1, 12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(SIZES, SIZES, st.one_of(st.integers(1, 14), st.tuples(st.one_of(st.none(), SIZES), st.one_of(st.none(), SIZES))))
def test_any_adaptive_avg_pool2d(height, width, size):
    x = RNG.standard_normal((2, 3, height, width))
    check_against_torch(
        lambda x: adaptive_avg_pool2d(x, size), lambda x: PEER.adaptive_avg_pool2d(x, size), [x], dtype="float64"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [(2, 2, 0), (3, 2, 1)], ids=str)
def test_layers(options, dtype):
    x = RNG.standard_normal((4, 16, 28, 30))
    check_against_torch(lambda x: avg_pool2d(x, *options), lambda x: PEER.avg_pool2d(x, *options), [x], dtype=dtype)
    x = RNG.permutation(np.linspace(-1, 1, 1 * 2 * 8 * 10)).reshape(1, 2, 8, 10)
    check_against_torch(lambda x: max_pool2d(x, *options), lambda x: PEER.max_pool2d(x, *options), [x], dtype=dtype)


def test_special_values():
    """NaN, infinities and ties: the same values, found in the same places."""
    x = RNG.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (3, 4, 9, 11), p=[0.05, 0.1, 0.45, 0.2, 0.2])
    for options in ((2, 2, 0), (3, 1, 1), (3, 2, 1, 2, True), ((1, 4), 1, (0, 2))):
        ours = max_pool2d(flow.tensor(x), *options, return_indices=True)
        theirs = PEER.max_pool2d(torch.from_numpy(x), *options, return_indices=True)
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a.numpy(), b.numpy())


FUNCTIONS = flow.nn.functional
SIZES = {1: (7,), 2: (7, 6), 3: (7, 6, 8)}


@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("outer", [(2, 3), (3,)])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pools_of_all_dims(dims, outer, ceil_mode):
    shape = (*outer, *SIZES[dims])
    x = RNG.permutation(np.linspace(-2, 2, int(np.prod(shape)))).reshape(shape)
    calls = [(f"max_pool{dims}d", (size, stride, padding, dilation, ceil_mode, True))
             for size, stride, padding, dilation in ((3, 2, 1, 2), ((2, 3, 2)[:dims], None, 0, 1))]  # fmt: skip
    calls += [(f"avg_pool{dims}d", (3, 2, 1, ceil_mode, include)) for include in (True, False)]
    calls += [(f"avg_pool{dims}d", (3, 2, 1, ceil_mode, True, 5))] if dims > 1 else []
    calls += [(f"adaptive_max_pool{dims}d", (count, True)) for count in (1, 3, 5)]
    calls += [(f"adaptive_avg_pool{dims}d", (count,)) for count in (1, 3, 5)]
    calls += [(f"adaptive_max_pool{dims}d", ((None, 3, 2)[:dims], True))] if dims > 1 else []
    for name, options in calls:
        ours, theirs = getattr(FUNCTIONS, name), getattr(PEER, name)
        check_against_torch(
            lambda x, f=ours, options=options: f(x, *options), lambda x, f=theirs, options=options: f(x, *options),
            [x], dtype="float64",
        )  # fmt: skip


@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("sized", [False, True])
def test_max_unpool(dims, sized):
    x = RNG.standard_normal((2, 3, *SIZES[dims]))
    y, index = getattr(PEER, f"max_pool{dims}d")(torch.from_numpy(x), 2, return_indices=True)
    size = SIZES[dims] if sized else None
    want = getattr(PEER, f"max_unpool{dims}d")(y, index, 2, output_size=size)
    got = getattr(FUNCTIONS, f"max_unpool{dims}d")(flow.tensor(y.numpy()), flow.tensor(index.numpy()), 2, None, 0, size)
    assert_same(got, want.numpy())


def test_an_output_size_that_max_unpool_cannot_have_come_from():
    x = flow.ones(1, 1, 2, 2)
    with pytest.raises(ArgumentError, match=r"max_unpool2d: got output_size=\(9, 4\); expected \(4, 4\)"):
        FUNCTIONS.max_unpool2d(x, flow.zeros(1, 1, 2, 2, dtype=flow.int64), 2, output_size=(9, 4))
