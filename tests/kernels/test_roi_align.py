"""Regions of images against their definition in NumPy, and the gradient as the transpose of the same weights."""

import numpy as np
import pytest
from checks import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels.roi_align import roi_align, roi_align_grad

SIZE, BINS, BLOCK = (2, 3, 7, 6), (2, 3), (8, 4, 1)
ROIS = np.array([[0, 1, 1, 9, 8], [1, -6, 2, 5.5, 30], [1, 3, 3, 3.2, 3.1], [2, 0, 0, 4, 4]], np.float32)
WAYS = [(0.5, 2, True), (0.5, 0, True), (1.0, 3, False), (0.75, -1, False)]  # scale, ratio, aligned
ways = pytest.mark.parametrize("scale, ratio, aligned", WAYS)


def weights(low, high, bins, n, ratio, aligned):
    """(bins, n): what each of n pixels along one side of a region adds to each bin."""
    start, side = low - 0.5 * aligned, high - low if aligned else max(high - low, 1.0)
    count = ratio if ratio > 0 else int(np.ceil(side / bins))
    result = np.zeros((bins, n))
    for b in range(bins):
        for i in range(count):
            position = start + (b + (i + 0.5) / count) * side / bins
            if -1 <= position <= n:
                position = min(max(position, 0), n - 1)
                before = int(position)
                result[b, before] += (before + 1 - position) / count
                result[b, min(before + 1, n - 1)] += (position - before) / count
    return result


def matrices(scale, ratio, aligned):
    """For each region of an image that there is: its number, the image, and the weights along both sides."""
    for k, (image, x0, y0, x1, y1) in enumerate(ROIS.astype(np.float64)):
        if image < SIZE[0]:
            rows = weights(y0 * scale, y1 * scale, BINS[0], SIZE[2], ratio, aligned)
            yield k, int(image), rows, weights(x0 * scale, x1 * scale, BINS[1], SIZE[3], ratio, aligned)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


def grid():
    return (-(-SIZE[1] * BINS[0] * BINS[1] // BLOCK[0]), 1, 1)


@ways
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_means_of_bins(scale, ratio, aligned, kind):
    x, y = numbers(*SIZE, kind=kind), np.full((len(ROIS), SIZE[1], *BINS), np.nan, kind)
    roi_align[grid(), BLOCK](x, ROIS, y, scale, ratio, aligned)
    expected = np.zeros(y.shape)
    for k, image, rows, columns in matrices(scale, ratio, aligned):
        expected[k] = rows @ x[image].astype(np.float64) @ columns.T
    assert_close(y, expected.astype(kind), rtol=1e-5, atol=1e-5)


@ways
def test_gradients(scale, ratio, aligned):
    dy, dx = numbers(len(ROIS), SIZE[1], *BINS), np.zeros(SIZE, np.float32)
    roi_align_grad[grid(), BLOCK](dy, ROIS, dx, scale, ratio, aligned)
    expected = np.zeros(SIZE)
    for k, image, rows, columns in matrices(scale, ratio, aligned):
        expected[image] += rows.T @ dy[k].astype(np.float64) @ columns
    assert_close(dx, expected.astype(np.float32), rtol=1e-5, atol=1e-5)


CASES = [
    Case(
        "roi_align",
        roi_align,
        lambda: [numbers(*SIZE), ROIS, np.full((len(ROIS), SIZE[1], *BINS), np.nan, np.float32), 0.5, 2, True],
        grid(),
        BLOCK,
    ),
    Case(
        "roi_align_grad",
        roi_align_grad,
        lambda: [numbers(len(ROIS), SIZE[1], *BINS), ROIS, np.zeros(SIZE, np.float32), 0.5, 2, True],
        grid(),
        BLOCK,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
