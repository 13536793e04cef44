"""Operations with gradients of the user's own: ctx, several outputs, absent gradients, higher orders, errors."""

import weakref

import numpy as np
import pytest
from checks import assert_close, assert_same, check_op

import miniflow as flow
from miniflow.autograd import Function, once_differentiable
from miniflow.errors import AutogradError


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64."""
    return flow.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


class Cube(Function):
    """x^3, written in ops, with an attribute on ctx."""

    @staticmethod
    def forward(ctx, x, scale=1.0):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 3 * x * x * ctx.scale, None


class Exp(Function):
    """e^x, which saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


class SumAndProduct(Function):
    """Two outputs of two inputs, and which gradients were asked for."""

    asked: tuple = ()

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y, x * y

    @staticmethod
    def backward(ctx, dsum, dproduct):
        x, y = ctx.saved_tensors
        SumAndProduct.asked = ctx.needs_input_grad
        return dsum + dproduct * y, dsum + dproduct * x


def test_every_rule_for_ops_holds():
    x = np.random.default_rng(0).uniform(0.5, 2.0, (3, 4))
    check_op(lambda x: Cube.apply(x, 2.0), [x], lambda x: 2 * x**3, third=True)
    check_op(Exp.apply, [x], np.exp, third=True)
    check_op(SumAndProduct.apply, [x, x[::-1].copy()], lambda x, y: (x + y, x * y))


def test_double_backward_through_a_saved_output():
    x = flow.tensor([0.5, 1.0], dtype=flow.float64, requires_grad=True)
    g = x
    y = Exp.apply(x).sum()
    for _ in range(3):
        (g,) = flow.autograd.grad(y, x, create_graph=True)
        y = g.sum()
    assert_close(g, np.exp([0.5, 1.0]))


def test_gradients_that_are_not_needed():
    x, y = leaf(3), leaf(3, seed=1).detach()
    total, product = SumAndProduct.apply(x, y)
    (total + product).sum().backward()
    assert SumAndProduct.asked == (True, False)
    assert_close(x.grad, 1 + y.cpu().numpy())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_output_without_a_cotangent_gets_zeros(device):
    x, y = (leaf(3, seed=seed).detach().to(device).requires_grad_() for seed in (0, 1))
    SumAndProduct.apply(x, y)[1].sum().backward()
    assert_same(x.grad, y.detach().cpu().numpy())
    assert_same(y.grad, x.detach().cpu().numpy())


def test_cotangents_may_arrive_as_none():
    seen = []

    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x[0] * 1, x[1] * 1

        @staticmethod
        def backward(ctx, d0, d1):
            seen.append((d0 is None, d1 is None))
            return flow.stack([d0 if d0 is not None else flow.zeros_like(d1), d1])

    x = leaf(2, 3)
    Split.apply(x)[1].sum().backward()
    assert seen == [(True, False)]
    assert_same(x.grad, np.array([[0.0] * 3, [1.0] * 3]))


def test_outputs_without_a_gradient():
    class MaxAndWhere(Function):
        @staticmethod
        def forward(ctx, x):
            where = x.detach().argmax(0)
            top = x.amax(0)
            count = (x > 0).sum().double()
            ctx.mark_non_differentiable(count)
            ctx.save_for_backward(where)
            ctx.rows = x.shape[0]
            return top, where, count, "a word"

        @staticmethod
        def backward(ctx, dtop, dwhere, dcount, dword):
            assert dword is None and dcount.item() == 0 and dcount.dtype == flow.float64
            (where,) = ctx.saved_tensors
            assert dwhere.shape == where.shape and not dwhere.any()
            return flow.nn.functional.one_hot(where, ctx.rows).t().double() * dtop

    x = leaf(4, 3)
    top, where, count, _ = MaxAndWhere.apply(x)
    assert top.requires_grad and not where.requires_grad and not count.requires_grad
    top.backward(flow.tensor([1.0, 2.0, 3.0]))
    expected = np.zeros((4, 3))
    expected[x.detach().cpu().numpy().argmax(0), range(3)] = [1, 2, 3]
    assert_same(x.grad, expected)


def test_forward_is_not_recorded_and_backward_is_on_demand():
    modes = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, x):
            modes.append(flow.is_grad_enabled())
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            modes.append(flow.is_grad_enabled())
            return dy * 2

    x = leaf(2)
    y = Watch.apply(x)
    assert y.grad_fn.name == "Watch_backward"
    y.sum().backward()
    flow.autograd.grad(Watch.apply(x).sum(), x, create_graph=True)
    assert modes == [False, False, False, True]


def test_nothing_is_recorded_without_need():
    assert not Cube.apply(leaf(2).detach()).requires_grad
    with flow.no_grad():
        assert not Cube.apply(leaf(2)).requires_grad


def test_an_input_returned_as_it_is():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, dy):
            return -dy

    x = leaf(3)
    y = Reverse.apply(x)
    assert y is not x and x.is_leaf and not y.is_leaf
    (y + x * 2).sum().backward()
    assert_same(x.grad, np.ones(3))


def test_a_view_returned_from_forward():
    class Head(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2]

        @staticmethod
        def backward(ctx, dy):
            return flow.cat([dy * 10, dy[:1] * 0])

    x = leaf(3)
    Head.apply(x).sum().backward()
    assert_same(x.grad, np.array([10.0, 10, 0]))


def test_saved_inputs_are_watched_for_changes():
    x = leaf(3)
    inner = x * 1
    y = Cube.apply(inner)
    inner.add_(1)
    with pytest.raises(
        AutogradError, match="Cube: a tensor of shape .3,. that its backward needs was changed by an in-place"
    ):
        y.sum().backward()


def test_a_second_backward_is_an_error():
    y = Cube.apply(leaf(3)).sum()
    y.backward()
    with pytest.raises(AutogradError, match="Cube: backward through a graph whose saved tensors were freed"):
        y.backward()


def test_broadcasting_is_not_undone_for_a_function():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * flow.ones(2, 3, dtype=flow.float64)

        @staticmethod
        def backward(ctx, dy):
            return dy

    with pytest.raises(AutogradError, match=r"Wrong: .*gradient of shape \(2, 3\) for input 0; expected \(3,\)"):
        Wrong.apply(leaf(3)).sum().backward()


def test_the_number_of_gradients_is_checked():
    class TooFew(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, dy):
            return dy

    with pytest.raises(AutogradError, match="TooFew.backward returned 1 gradients; expected 2, one for each argument"):
        TooFew.apply(leaf(2), leaf(2)).sum().backward()


@pytest.mark.parametrize("what", ["ndarray", "float"])
def test_what_is_no_tensor_is_not_a_gradient(what):
    class Numbers(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            return 2.0 if what == "float" else np.ones(2, np.float32)

    with pytest.raises(AutogradError, match=f"Numbers.backward returned a {what}; expected a tensor or None"):
        Numbers.apply(leaf(2)).sum().backward()


def test_methods_must_be_overridden():
    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError, match="forward must be overridden by a static method"):
        Empty.apply(leaf(2))


def test_what_a_function_saved_is_freed():
    x = leaf(3)
    y = Exp.apply(x)
    tensor, node = weakref.ref(y), weakref.ref(y.grad_fn)
    y.sum().backward()
    del y
    assert tensor() is None and node() is None


def test_needs_input_grad_can_be_read_in_forward():
    seen = []

    class Ask(Function):
        @staticmethod
        def forward(ctx, x, y):
            seen.append(ctx.needs_input_grad)
            return x * 2 + y

        @staticmethod
        def backward(ctx, dy):
            return dy * 2, dy

    Ask.apply(leaf(2), leaf(2).detach())
    assert seen == [(True, False)]


class DoubledInPlace(Function):
    """x becomes 2 x, in its own memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


@pytest.mark.parametrize(("part", "gradient"), [(slice(None), [72.0, 72.0, 72.0]), (slice(2), [72.0, 72.0, 18.0])])
def test_a_dirty_input_is_rewritten_on_the_tape(part, gradient):
    a = flow.ones(3, requires_grad=True)
    b = a * 3
    place = b if part == slice(None) else b[part]
    assert DoubledInPlace.apply(place) is place
    (b * b).sum().backward()  # b = 6 a where it was doubled, 3 a elsewhere
    assert a.grad.tolist() == gradient


def test_a_dirty_leaf_is_refused_and_a_dirty_input_must_be_returned():
    class Forgetful(DoubledInPlace):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x + 1

    with pytest.raises(AutogradError, match="mark_dirty: a leaf tensor that requires grad"):
        DoubledInPlace.apply(flow.ones(3, requires_grad=True))
    with pytest.raises(AutogradError, match="Forgetful.forward marked an input as dirty that it does not return"):
        Forgetful.apply(flow.ones(3, requires_grad=True) * 1)


def test_once_differentiable_refuses_a_second_derivative():
    class NumpyCube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return flow.as_tensor(x.detach().cpu().numpy() ** 3)

        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return flow.as_tensor(dy.detach().cpu().numpy() * 3 * x.detach().cpu().numpy() ** 2)

    x = flow.tensor([2.0], requires_grad=True)
    NumpyCube.apply(x).sum().backward()
    assert x.grad.tolist() == [12.0]
    (slope,) = flow.autograd.grad(NumpyCube.apply(x).sum(), x, create_graph=True)
    assert slope.tolist() == [12.0]
    with pytest.raises(AutogradError, match="NumpyCube.backward is marked once_differentiable"):
        slope.sum().backward()


def test_a_context_that_is_set_up_apart():
    class Product(Function):
        @staticmethod
        def forward(x, y, scale):
            return x * y * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y, ctx.scale = inputs
            ctx.save_for_backward(x, y, output)

        @staticmethod
        def backward(ctx, dy):
            x, y, output = ctx.saved_tensors
            assert output.item() == 24
            return dy * y * ctx.scale, dy * x * ctx.scale, None

    x, y = (flow.tensor(value, requires_grad=True) for value in (3.0, 2.0))
    Product.apply(x, y, 4).backward()
    assert x.grad.item() == 8 and y.grad.item() == 12
