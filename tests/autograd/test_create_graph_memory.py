"""Gradients by `backward(create_graph=True)` have memory of their own, and can be differentiated."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn


def leaves():
    return flow.tensor([1.0], requires_grad=True), flow.tensor([2.0], requires_grad=True)


def test_leaves_with_an_equal_gradient_share_no_memory():
    a, b = leaves()
    (3 * (a + b)).sum().backward(create_graph=True)
    nn.utils.clip_grad_norm_([a, b], 1.0)
    assert a.grad.tolist() == b.grad.tolist() == pytest.approx([0.5**0.5])


def test_the_gradient_given_to_backward_is_left_alone():
    a, _ = leaves()
    given = flow.ones(1)
    (a * 1.0).backward(given, create_graph=True)
    with flow.no_grad():
        a.grad.mul_(2.0)
    assert given.tolist() == [1.0]


def test_gradients_can_be_differentiated():
    a, _ = leaves()
    (a**3).sum().backward(create_graph=True)
    (second,) = flow.autograd.grad(a.grad.sum(), a)
    assert_same(second, np.float32([6.0]))
