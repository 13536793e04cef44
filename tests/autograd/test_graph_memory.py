"""The graph is freed by reference counts alone, as soon as nobody needs it."""

import gc
import weakref

import numpy as np
import pytest

import miniflow as flow


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64."""
    return flow.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def test_the_graph_is_freed_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        x = leaf(4, 4)
        y = (x @ x).exp()
        y.retain_grad()
        z = (y * y).sum()
        nodes = [weakref.ref(z.grad_fn), weakref.ref(y.grad_fn)]
        middle = weakref.ref(y)
        z.backward()
        del y, z
        assert [ref() for ref in nodes] == [None, None] and middle() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("op", ["exp", "sqrt", "tanh", "sigmoid", "rsqrt"])
def test_ops_that_save_their_output_make_no_cycle(op):
    gc.collect()
    gc.disable()
    try:
        y = getattr((leaf(3) ** 2 + 1.0), op)()
        tensor, node = weakref.ref(y), weakref.ref(y.grad_fn)
        del y
        assert tensor() is None and node() is None
    finally:
        gc.enable()


def test_backward_frees_saved_tensors_while_the_result_lives():
    x = leaf(3)
    inner = x * 2
    watched = weakref.ref(inner)
    z = (inner * inner).sum()
    del inner
    assert watched() is not None
    z.backward()
    assert watched() is None, "what the graph saved is freed by backward"
    assert z.requires_grad


def test_in_place_and_views_make_no_cycle():
    gc.collect()
    gc.disable()
    try:
        x = leaf(3, 3)
        y = x * 1
        row = y[0]
        row.mul_(x[1])
        y.add_(1).exp_()
        node, tensor, view = weakref.ref(y.grad_fn), weakref.ref(y), weakref.ref(row)
        y.sum().backward()
        del y, row
        assert node() is None and tensor() is None and view() is None
    finally:
        gc.enable()


def test_a_graph_is_freed_after_create_graph():
    gc.collect()
    gc.disable()
    try:
        x = leaf(3)
        (g,) = flow.autograd.grad((x**3).sum(), x, create_graph=True)
        node = weakref.ref(g.grad_fn)
        g.sum().backward()
        del g
        assert node() is None
    finally:
        gc.enable()
