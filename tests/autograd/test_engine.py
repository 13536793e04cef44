"""The walk over the tape: order, sharing, accumulation, higher orders, modes, hooks, memory, errors."""

import gc
import threading
import weakref

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.autograd import engine
from miniflow.dispatch import Op, call
from miniflow.errors import AutogradError
from miniflow.ops.elementwise import Mul, Neg


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
    original = engine.Walk.visit

    def visit(self, node, cotangents):
        seen.append(node)
        return original(self, node, cotangents)

    monkeypatch.setattr(engine.Walk, "visit", visit)
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
    for _ in range(100_000):
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


# accumulation


def test_leaves_accumulate():
    x = leaf(3)
    for count in (1, 2, 3):
        (x * 2).sum().backward()
        assert_same(x.grad, np.full(3, 2.0 * count))
    before = x.grad
    (x * 2).sum().backward()
    assert x.grad is before, "later gradients are added in place, as in PyTorch"


SHARING = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "views": lambda a, b: a.t() + b.view(3, 3),
    "sum": lambda a, b: a.sum() + b.sum(),
    "expand": lambda a, b: a[:1].expand(3, 3) + b,
    "same": lambda a, b: a + a + b,
    "reshape": lambda a, b: a.reshape(9) + b.reshape(9),
    "cat": lambda a, b: flow.cat([a, b]),
    "stack": lambda a, b: flow.stack([a, b]),
    "where": lambda a, b: flow.where(flow.ones(3, 3) > 0, a, b),
}


@pytest.mark.parametrize("name", SHARING)
def test_every_gradient_has_memory_of_its_own(name):
    a, b = leaf(3, 3), leaf(3, 3, seed=1)
    y = SHARING[name](a, b)
    cotangent = flow.tensor(np.random.default_rng(2).normal(size=y.shape))
    kept = cotangent.numpy().copy()
    y.backward(cotangent, retain_graph=True)
    arrays = [a.grad.numpy(), b.grad.numpy(), cotangent.numpy(), a.detach().numpy(), b.detach().numpy()]
    for i, first in enumerate(arrays):
        assert not any(np.shares_memory(first, second) for second in arrays[:i])
    assert a.grad is not b.grad and a.grad.is_contiguous() and b.grad.is_contiguous()
    first = a.grad.numpy().copy()
    a.grad.zero_()
    b.grad.fill_(7)
    y.backward(cotangent)
    assert_same(a.grad, first)
    assert_same(cotangent, kept)


def test_the_gradient_of_a_leaf_itself():
    x = leaf(2, 2)
    given = flow.ones(2, 2, dtype=flow.float64)
    x.backward(given)
    x.grad.add_(1)
    assert_same(given, np.ones((2, 2)))
    assert_same(x.grad, np.full((2, 2), 2.0))


def test_a_gradient_kept_elsewhere_is_not_changed_by_accumulation():
    kept = []
    x = leaf(3)
    y = x * 1
    y.register_hook(kept.append)
    x.register_hook(kept.append)
    y.retain_grad()
    y.backward(flow.ones(3, dtype=flow.float64))
    values = [g.numpy().copy() for g in kept]
    retained = y.grad.numpy().copy()
    (x * 5).sum().backward()
    x.grad.add_(100)
    for g, value in zip(kept[:2], values, strict=True):
        assert_same(g, value)
    assert_same(y.grad, retained)


def test_fresh_gradients_are_not_copied(monkeypatch):
    """A weight's gradient, fresh from a matrix product, is taken as it is: no copy is made."""
    copies = []
    original = engine.call
    monkeypatch.setattr(
        engine, "call", lambda op, *inputs, **attrs: copies.append(op) or original(op, *inputs, **attrs)
    )
    x = flow.ones(8, 5)
    weight = flow.ones(3, 5, requires_grad=True)
    flow.nn.functional.linear(x, weight).relu().sum().backward()
    kernel = flow.ones(4, 2, 3, 3, requires_grad=True)
    flow.nn.functional.conv2d(flow.ones(2, 2, 8, 8), kernel).exp().sum().backward()
    assert weight.grad.shape == (3, 5) and kernel.grad.shape == (4, 2, 3, 3)
    assert copies == []
    a, b = leaf(3), leaf(3)
    (a + b).backward(flow.ones(3, dtype=flow.float64))
    assert len(copies) == 2, "a gradient that somebody else can see is copied"


def test_gradients_have_the_dtype_of_their_leaf():
    x = flow.ones(2, requires_grad=True)
    w = flow.ones(2, dtype=flow.float64, requires_grad=True)
    h = flow.ones(2, dtype=flow.float16, requires_grad=True)
    (x * w * h).sum().backward()
    assert x.grad.dtype is flow.float32 and w.grad.dtype is flow.float64 and h.grad.dtype is flow.float16
    y = flow.ones(2, requires_grad=True)
    (y * 2).backward(flow.ones(2, dtype=flow.float64))
    assert y.grad.dtype is flow.float32
    z = flow.ones(2, requires_grad=True)
    z.backward(flow.ones(2, dtype=flow.float64))
    assert z.grad.dtype is flow.float32


# grad, retain_graph, create_graph


def test_grad_leaves_the_leaves_alone():
    x, y = leaf(3), leaf(3, seed=1)
    dx, dy = flow.autograd.grad((x * y).sum(), [x, y])
    assert_same(dx, y.detach().numpy())
    assert_same(dy, x.detach().numpy())
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
    a = x.detach().numpy()
    hessian = np.diag(6 * a)
    for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        hessian[i, j] += a[k]
        hessian[j, i] += a[k]
    assert_close(hv, hessian @ v)


def test_gradients_flow_to_cotangents():
    x, c = leaf(3), leaf(3, seed=4)
    (g,) = flow.autograd.grad(x.exp(), x, c, create_graph=True)
    (gc_,) = flow.autograd.grad(g, c, flow.ones(3, dtype=flow.float64))
    assert_close(gc_, np.exp(x.detach().numpy()))


# modes


@pytest.mark.parametrize("mode", [flow.no_grad, flow.inference_mode, lambda: flow.set_grad_enabled(False)])
def test_nothing_is_recorded_inside(mode):
    x = scalar()
    with mode():
        assert not flow.is_grad_enabled()
        y = x * 2
    assert flow.is_grad_enabled() and not y.requires_grad and y.is_leaf
    with flow.no_grad(), flow.enable_grad():
        assert (x * 2).requires_grad


def test_modes_as_decorators():
    x = scalar()

    @flow.no_grad()
    def called():
        return x * 2

    @flow.no_grad
    def bare(scale, *, shift):
        "Its documentation."
        return x * scale + shift

    @flow.enable_grad()
    def recorded():
        return x * 2

    @flow.set_grad_enabled(False)
    def switched():
        return x * 2

    assert flow.is_grad_enabled()
    assert not called().requires_grad and not bare(2, shift=1).requires_grad and not switched().requires_grad
    assert bare.__name__ == "bare" and bare.__doc__ == "Its documentation."
    with flow.no_grad():
        assert recorded().requires_grad and not flow.is_grad_enabled()


def test_modes_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), flow.no_grad():
        raise ZeroDivisionError
    assert flow.is_grad_enabled()

    @flow.no_grad
    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert flow.is_grad_enabled()


def test_one_mode_object_may_be_entered_again():
    mode = flow.no_grad()
    with mode:
        with mode:
            assert not flow.is_grad_enabled()
        assert not flow.is_grad_enabled()
    assert flow.is_grad_enabled()


def test_set_grad_enabled_acts_at_once():
    flow.set_grad_enabled(False)
    try:
        assert not flow.is_grad_enabled()
    finally:
        flow.set_grad_enabled(True)
    assert flow.is_grad_enabled()


def test_modes_belong_to_their_thread():
    states = {}
    entered, leave = threading.Event(), threading.Event()

    def run():
        with flow.no_grad():
            entered.set()
            leave.wait(10)
            states["inside"] = flow.is_grad_enabled()
        states["after"] = flow.is_grad_enabled()

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)
    states["here"] = flow.is_grad_enabled()
    leave.set()
    thread.join()
    assert states == {"here": True, "inside": False, "after": True}


def test_backward_in_two_threads():
    results = {}

    def run(name):
        x = leaf(50, 50, seed=name)
        for _ in range(20):
            x.grad = None
            ((x @ x).tanh() * x).sum().backward()
        results[name] = x.grad.numpy()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parallel = dict(results)
    for i in range(3):
        run(i)
        assert_close(parallel[i], results[i])


def test_backward_leaves_the_mode_as_it_was():
    x = scalar()
    with flow.no_grad():
        pass
    y = x * x
    with flow.no_grad():
        y.backward(create_graph=True)
        assert not flow.is_grad_enabled()
    assert x.grad.requires_grad


# hooks


def test_tensor_hooks_see_and_replace_gradients():
    x = scalar(2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 5).backward(retain_graph=True)
    assert seen == [5.0, 50.0] and x.grad.item() == 150.0
    handle.remove()
    handle.remove()
    (y * 5).backward()
    assert seen == [5.0, 50.0, 5.0, 5.0] and x.grad.item() == 165.0


def test_hooks_on_leaves():
    x = scalar(2.0)
    x.register_hook(lambda g: g * 2)
    (x * 3).backward()
    assert x.grad.item() == 6.0
    assert flow.autograd.grad(x * 3, x)[0].item() == 6.0


def test_a_hook_runs_once_with_the_complete_gradient():
    x = scalar(2.0)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 2 + y * 3 + y.exp()).backward()
    assert seen == [5.0 + np.exp(2.0)]


def test_a_hook_must_keep_the_shape():
    x = leaf(3)
    y = x * 2
    y.register_hook(lambda g: g[:2])
    with pytest.raises(AutogradError, match=r"hook: got a replacement of shape \(2,\) for a gradient of shape \(3,\)"):
        y.sum().backward()
    with pytest.raises(AutogradError, match="register_hook: the tensor does not require grad"):
        flow.ones(2).register_hook(print)


def test_retain_grad():
    x = scalar(2.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    (y * y).backward(retain_graph=True)
    assert y.grad.item() == 12.0
    (y * y).backward()
    assert y.grad.item() == 24.0 and x.grad.item() == 72.0
    z = x * 2
    z.backward()
    assert z.grad is None
    with pytest.raises(AutogradError, match="retain_grad: the tensor does not require grad"):
        flow.ones(2).retain_grad()


# memory


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
    with pytest.raises(TypeError, match=r"neg: got \(float\); expected at least one Tensor"):
        call(Neg, 2.0)


def test_the_tape_is_readable():
    x = scalar()
    y = x * 2 + 1
    assert repr(y.grad_fn) == "<add_backward>" and x.grad_fn is None
    (inner, index), constant = y.grad_fn.next_functions
    assert inner.name == "mul_backward" and index == 0 and constant == (None, 0)
    assert y.output_nr == 0 and flow.ones(4, requires_grad=True).split(2)[1].grad_fn is not None
