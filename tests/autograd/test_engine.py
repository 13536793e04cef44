"""The backward pass: order, sharing, `grad`, higher orders, errors."""

import weakref

import numpy as np
import pytest
from checks import assert_close, assert_same
from op_classes import Mul, Neg

import miniflow as flow
from miniflow.autograd import engine
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ArgumentError, AutogradError


def scalar(value: float = 3.0) -> flow.Tensor:
    """A 0-dim leaf in float64."""
    return flow.tensor(value, dtype=flow.float64, requires_grad=True)


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64."""
    return flow.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


@pytest.fixture
def visits(monkeypatch):
    """The nodes that the engine visits, in order."""
    seen = []
    original = engine.BackwardPass.visit

    def visit(self, node, cotangents):
        seen.append(node)
        return original(self, node, cotangents)

    monkeypatch.setattr(engine.BackwardPass, "visit", visit)
    return seen


# order and sharing


def test_nodes_are_visited_newest_first(visits):
    x = scalar()
    a = x * 2
    b = x.exp()
    c = a + b
    d = a * c
    d.backward()
    assert [n.name for n in visits[:-1]] == ["mul_backward", "add_backward", "exp_backward", "mul_backward"]
    assert visits[0] is d.grad_fn and visits[3] is a.grad_fn
    sequences = [node.sequence for node in visits]
    assert sequences == sorted(sequences, reverse=True)


def test_doublings_visit_each_node_once(visits):
    x = scalar(1.0)
    y = x
    for _ in range(18):
        y = y + y
    y.backward()
    assert len(visits) == 18 + 1
    assert x.grad.item() == 2.0**18


def test_a_shared_node_waits_for_all_of_its_consumers():
    x = scalar(2.0)
    a = x * x
    y = a
    for _ in range(5):
        y = y * a + a.sin()
    y.backward()
    exact = scalar(2.0)
    eps = 1e-6

    def value(v):
        a = y = v * v
        for _ in range(5):
            y = y * a + np.sin(a)
        return y

    assert_close(x.grad, (value(2.0 + eps) - value(2.0 - eps)) / (2 * eps), rtol=1e-7)
    assert exact.grad is None


def test_a_long_chain_needs_no_recursion():
    x = scalar(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    alive = weakref.ref(y.grad_fn)
    y.backward()
    assert x.grad.item() == 1.0 and y.item() == 100_001.0
    del y
    assert alive() is None, "the chain is destroyed at once, without recursion"


def test_a_long_chain_is_destroyed_without_backward():
    x = scalar(1.0)
    y = x
    for _ in range(50_000):
        y = y * 1.0
    bottom = weakref.ref(y.grad_fn)
    del y
    assert bottom() is None


def test_gradients_of_a_long_chain_by_grad():
    x = scalar(1.0)
    y = x
    for _ in range(20_000):
        y = y + 1.0
    (g,) = flow.autograd.grad(y, x)
    assert g.item() == 1.0


# grad, retain_graph, create_graph


def test_grad_leaves_the_leaves_alone():
    x, y = leaf(3), leaf(3, seed=1)
    dx, dy = flow.autograd.grad((x * y).sum(), [x, y])
    assert_same(dx, y.detach().cpu().numpy())
    assert_same(dy, x.detach().cpu().numpy())
    assert x.grad is None and y.grad is None


def test_grad_of_inner_tensors():
    x = scalar(2.0)
    y = x * x
    z = y * 5
    dz, dy, dx = flow.autograd.grad(z, [z, y, x])
    assert (dz.item(), dy.item(), dx.item()) == (1.0, 5.0, 20.0)


def test_grad_of_several_outputs():
    x = scalar(2.0)
    (g,) = flow.autograd.grad([x * 3, x * x], [x], [flow.tensor(2.0), None])
    assert g.item() == 2 * 3 + 4


def test_grad_only_walks_where_it_must(visits):
    x, w = scalar(), scalar()
    side = w.exp().sin()
    y = x * 2 + side
    flow.autograd.grad(y, x)
    assert "sin_backward" not in [getattr(n, "name", "leaf") for n in visits]


def test_unused_inputs():
    x, y = scalar(), scalar()
    with pytest.raises(AutogradError, match="grad: input 1 .*was not used.*allow_unused=True"):
        flow.autograd.grad(x * 2, [x, y])
    assert flow.autograd.grad(x * 2, [x, y], allow_unused=True)[1] is None
    with pytest.raises(AutogradError, match="grad: input 0 does not require grad"):
        flow.autograd.grad(x * 2, flow.ones(1))


def test_retain_graph():
    x = scalar(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert x.grad.item() == 8.0
    y.backward()
    with pytest.raises(
        RuntimeError, match="mul: backward through a graph whose saved tensors were freed.*retain_graph=True"
    ):
        y.backward()
    assert x.grad.item() == 12.0


def test_a_second_backward_that_needs_nothing_saved_is_allowed():
    x = scalar()
    y = x + 1
    y.backward()
    y.backward()
    assert x.grad.item() == 2.0


def test_create_graph_to_third_order():
    x = scalar(2.0)
    y = x**4
    (d1,) = flow.autograd.grad(y, x, create_graph=True)
    (d2,) = flow.autograd.grad(d1, x, create_graph=True)
    (d3,) = flow.autograd.grad(d2, x, create_graph=True)
    (d4,) = flow.autograd.grad(d3, x)
    assert [d.item() for d in (d1, d2, d3, d4)] == [32.0, 48.0, 48.0, 24.0]
    assert not d4.requires_grad


def test_backward_with_create_graph():
    x = scalar(3.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.item() == 27.0
    slope = x.grad
    x.grad = None
    slope.backward()
    assert x.grad.item() == 18.0


def test_hessian_vector_product():
    x, v = leaf(4), np.random.default_rng(3).normal(size=4)
    (g,) = flow.autograd.grad((x**3).sum() + (x[0] * x[1] * x[2]), x, create_graph=True)
    (hv,) = flow.autograd.grad(g, x, flow.tensor(v))
    a = x.detach().cpu().numpy()
    hessian = np.diag(6 * a)
    for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        hessian[i, j] += a[k]
        hessian[j, i] += a[k]
    assert_close(hv, hessian @ v)


def test_gradients_flow_to_cotangents():
    x, c = leaf(3), leaf(3, seed=4)
    (g,) = flow.autograd.grad(x.exp(), x, c, create_graph=True)
    (gc_,) = flow.autograd.grad(g, c, flow.ones(3, dtype=flow.float64))
    assert_close(gc_, np.exp(x.detach().cpu().numpy()))


# errors


def test_backward_from_a_non_scalar():
    y = leaf(2, 3) * 2
    with pytest.raises(
        RuntimeError, match=r"only for scalar outputs, got shape \(2, 3\).*y.sum\(\).*gradient of its shape"
    ):
        y.backward()
    y.backward(flow.ones(2, 3, dtype=flow.float64))
    z = leaf(1, 1) * 2
    z.backward()
    with pytest.raises(AutogradError, match="only for scalar outputs"):
        flow.autograd.grad(leaf(2) * 2, leaf(2))


def test_a_gradient_of_the_wrong_shape():
    y = leaf(2, 3) * 2
    with pytest.raises(
        AutogradError, match=r"backward: got a gradient of shape \(3, 2\) for a tensor of shape \(2, 3\)"
    ):
        y.backward(flow.ones(3, 2))
    with pytest.raises(AutogradError, match="got a gradient of type ndarray; expected a Tensor"):
        y.backward(np.ones((2, 3)))
    with pytest.raises(AutogradError, match="got 2 gradients for 1 tensors"):
        flow.autograd.backward([y], [None, None])


def test_backward_of_what_was_not_recorded():
    with pytest.raises(AutogradError, match="does not require grad and has no grad_fn.*requires_grad_"):
        flow.ones(1).backward()
    with flow.no_grad():
        y = scalar() * 2
    with pytest.raises(AutogradError, match="leave no_grad"):
        y.backward()


def test_an_op_whose_backward_has_the_wrong_shape(monkeypatch):
    x = leaf(2, 3)
    y = flow.neg(x)
    monkeypatch.setattr(Neg, "backward", staticmethod(lambda ctx, dy: dy.t()))
    with pytest.raises(
        AutogradError, match=r"neg: its backward returned a gradient of shape \(3, 2\) for input 0; expected \(2, 3\)"
    ):
        y.sum().backward()


def test_an_op_whose_backward_returns_too_few_gradients(monkeypatch):
    y = leaf(2) * leaf(2)
    monkeypatch.setattr(Mul, "backward", staticmethod(lambda ctx, dy: dy))
    with pytest.raises(AutogradError, match="mul: its backward returned 1 gradients; expected 2, one for each input"):
        y.sum().backward()


def test_ops_check_their_saves_when_they_are_defined():
    with pytest.raises(TypeError, match="Bad.saves names inputs first, then outputs"):

        class Bad(Op):
            saves = ("y", "x")

            def infer(x):
                return x.shape, x.dtype


def test_calls_without_a_tensor_are_refused():
    with pytest.raises(TypeError, match="neg: got input of type float; expected a Tensor: use flow.tensor"):
        call(Neg, 2.0)


def test_the_tape_is_readable():
    x = scalar()
    y = x * 2 + 1
    assert repr(y.grad_fn) == "<add_backward>" and x.grad_fn is None
    (inner, index), constant = y.grad_fn.next_functions
    assert inner.name == "mul_backward" and index == 0 and constant == (None, 0)
    assert y.output_nr == 0 and flow.ones(4, requires_grad=True).split(2)[1].grad_fn is not None


def test_arguments_of_grad_that_pytorch_has():
    x, y = (flow.tensor(value, requires_grad=True) for value in (3.0, 2.0))
    assert flow.autograd.grad(x * 2, [x], only_inputs=True)[0].item() == 2
    dx, dy = flow.autograd.grad(x * 2, [x, y], materialize_grads=True)
    assert dx.item() == 2 and dy.item() == 0
    with pytest.raises(ArgumentError, match="only_inputs=False"):
        flow.autograd.grad(x * 2, [x], only_inputs=False)


def test_detaching_in_place():
    x = flow.tensor(3.0, requires_grad=True)
    y = x * 2
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    (y * x).backward()
    assert x.grad.item() == 6
    with pytest.raises(AutogradError, match="detach_: got a view"):
        flow.ones(2, 2, requires_grad=True).exp()[0].detach_()
