"""Convolutions of no images or to no channels, and products over no features."""

import numpy as np
import pytest
from compare import count_comparison

import miniflow as flow
from miniflow.nn import functional as F

CONVOLUTIONS = {  # image, weight, options
    "no images, 1x1": ((0, 5, 16, 17), (4, 5, 1, 1), {}),
    "no images, 1x1, strides": ((0, 5, 40, 40), (4, 5, 1, 1), {"stride": 2}),
    "no images, few windows": ((0, 5, 4, 4), (4, 5, 1, 1), {}),
    "no images, 3x3": ((0, 16, 16, 17), (16, 16, 3, 3), {"padding": 1}),
    "no channels, 1x1": ((2, 3, 16, 17), (0, 3, 1, 1), {}),
    "no channels, 1x1, strides": ((2, 3, 40, 40), (0, 3, 1, 1), {"stride": 2}),
    "no channels, 3x3": ((2, 3, 16, 17), (0, 3, 3, 3), {}),
    "no channels, many inputs": ((2, 16, 16, 17), (0, 16, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    image, kernel, options = CONVOLUTIONS[name]
    x, weight = flow.randn(*image).requires_grad_(), flow.randn(*kernel).requires_grad_()
    y = F.conv2d(x, weight, **options)
    y.sum().backward()
    assert (y.shape[0], y.shape[1], y.numel()) == (image[0], kernel[0], 0)
    for leaf in (x, weight):
        np.testing.assert_array_equal(leaf.grad.cpu().numpy(), np.zeros(leaf.shape))
        count_comparison()


@pytest.mark.parametrize("shape", [(2, 3, 0), (0, 3, 0), (2, 0, 4), (0,)])
def test_products_over_no_features(shape):
    x, weight = flow.ones(*shape).requires_grad_(), flow.ones(5, shape[-1])
    for y in (x @ weight.T, F.linear(x, weight), F.linear(x, weight, flow.zeros(5))):
        np.testing.assert_array_equal(y.detach().cpu().numpy(), np.zeros((*shape[:-1], 5)))
        count_comparison()
    y.sum().backward()
    assert x.grad.shape == x.shape
