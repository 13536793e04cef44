"""In-place operations: values, version counters, gradients, and what is refused."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.autograd import gradcheck, gradgradcheck
from miniflow.errors import AutogradError, DTypeError, ShapeError

UNARY = (
    "abs ceil cos exp floor log neg reciprocal relu round rsqrt sigmoid sign sin sqrt square tanh trunc logical_not"
).split()
BINARY = {"add": 2.5, "sub": 2.5, "mul": 2.5, "div": 2.5, "pow": 2, "floor_divide": 0.7, "remainder": 0.7}


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A leaf of values between 0.5 and 2 that wants gradients, in float64."""
    return flow.tensor(np.random.default_rng(seed).uniform(0.5, 2.0, shape), requires_grad=True)


def gradient(function, *shape: int) -> np.ndarray:
    """The gradient of a function of one leaf, by random cotangents."""
    x = leaf(*shape)
    y = function(x)
    y.backward(flow.tensor(np.random.default_rng(1).uniform(1, 2, y.shape)))
    return x.grad.numpy()


@pytest.mark.parametrize("name", UNARY)
def test_unary_in_place(name):
    x = leaf(3, 4).detach()
    expected = getattr(x, name)()
    address = x.data_ptr()
    result = getattr(x, name + "_")()
    assert result is x and x.data_ptr() == address and x.version == 1
    assert_same(x, expected.numpy().astype(np.float64))


@pytest.mark.parametrize("name", [name for name in UNARY if name != "logical_not"])
def test_unary_in_place_has_the_gradient_of_its_namesake(name):
    by_copy = gradient(lambda x: getattr(x * 1.5, name)(), 3, 4)
    assert_same(gradient(lambda x: getattr(x * 1.5, name + "_")(), 3, 4), by_copy)
    through_view = gradient(lambda x: _through_row(x * 1.5, lambda row: getattr(row, name + "_")()), 3, 4)
    assert_same(through_view[1], by_copy[1])


def _through_row(x, write):
    write(x[1])
    return x


@pytest.mark.parametrize("name", BINARY)
def test_binary_in_place(name):
    number = BINARY[name]
    x = leaf(3, 4).detach()
    expected = getattr(x, name)(number).numpy()
    assert getattr(x, name + "_")(number) is x
    assert_same(x, expected)
    by_copy = gradient(lambda x: getattr(x * 1.5, name)(number), 3, 4)
    assert_same(gradient(lambda x: getattr(x * 1.5, name + "_")(number), 3, 4), by_copy)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_both_operands_get_their_gradient(name):
    def run(in_place):
        x, y = leaf(3, 4), leaf(4, seed=2)
        z = x * 1.0
        z = getattr(z, name + "_")(y) if in_place else getattr(z, name)(y)
        (z * z).sum().backward()
        return x.grad, y.grad

    for a, b in zip(run(True), run(False), strict=True):
        assert_close(a, b.numpy())


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__iadd__(2), lambda x: x.__isub__(2), lambda x: x.__imul__(2), lambda x: x.__itruediv__(2),
        lambda x: x.__ifloordiv__(2), lambda x: x.__imod__(2), lambda x: x.__ipow__(2),
    ],
)  # fmt: skip
def test_augmented_assignment_writes_in_place(write):
    x = flow.tensor([3.0, 5.0])
    alias = x[:]
    assert write(x) is x
    assert_same(alias, x.numpy())
    assert x.tolist() != [3.0, 5.0]


def test_bitwise_in_place():
    x = flow.tensor([6, 3])
    x &= 3
    assert x.tolist() == [2, 3]
    x |= 4
    assert x.tolist() == [6, 7]
    x ^= flow.tensor([1, 1])
    assert x.tolist() == [7, 6]


def test_operands_that_are_the_tensor_itself():
    x = leaf(3)
    y = x * 1
    y.mul_(y)
    y.add_(y)
    y.sum().backward()
    assert_close(x.grad, 4 * x.detach().numpy())


def test_operands_that_overlap():
    x = flow.arange(5).double()
    x[1:].add_(x[:-1])
    assert x.tolist() == [0.0, 1.0, 3.0, 5.0, 7.0]
    y = flow.arange(6).double().reshape(2, 3)
    y.copy_(y.flip(1))
    assert y.tolist() == [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]


def test_fill_zero_and_copy():
    x = leaf(2, 3)
    for write, values in (
        (lambda y: y.fill_(7), np.full((2, 3), 7.0)),
        (lambda y: y.zero_(), np.zeros((2, 3))),
        (lambda y: y.copy_(flow.tensor([1, 2, 3])), np.array([[1.0, 2, 3]] * 2)),
        (lambda y: y.fill_(flow.tensor(4.0)), np.full((2, 3), 4.0)),
    ):
        x.grad = None
        y = x * 2
        assert write(y) is y
        assert_same(y, values)
        (y + x).sum().backward()
        assert_same(x.grad, np.ones((2, 3)), what="overwritten values have no gradient")


def test_copy_gives_its_source_a_gradient():
    source = leaf(3)
    y = flow.zeros(2, 3, dtype=flow.float32)
    y.copy_(source)
    y.sum().backward()
    assert_same(source.grad, np.full(3, 2.0))


def test_setitem_gradients():
    for key in (1, (slice(None), 2), (..., slice(0, None, 2)), [0, 2], (slice(None), [True, False, True, False])):
        x, values = leaf(3, 4), leaf(1, seed=5)
        y = x * 3
        y[key] = values * 2
        y.sum().backward()
        mask = np.zeros((3, 4), bool)
        mask[key] = True
        assert_same(x.grad, np.where(mask, 0.0, 3.0))
        assert_same(values.grad, np.array([2.0 * mask.sum()]))


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (lambda y: y.view(12).mul_(2), lambda y: y.t()),
        (lambda y: y.view(-1)[2:5].mul_(2), lambda y: y.t()),
        (lambda y: y.flatten(0).relu_(), lambda y: y.sum(1)),
        (lambda y: y.view(2, 6).t()[1].mul_(2), lambda y: y.mean(0)),
        (lambda y: y.view(12).mul_(2), lambda y: y.t().contiguous().view(12)),
    ],
)
def test_the_cotangent_of_memory_written_through_a_view_may_have_any_strides(write, read):
    def function(x):
        y = x * 1
        write(y)
        return read(y).square()

    assert gradcheck(function, leaf(3, 4)) and gradgradcheck(function, leaf(3, 4))


def test_the_memory_written_through_a_view_may_have_any_strides():
    def function(x):
        y = flow.from_numpy(np.ones((3, 4)).T)
        y.t().view(2, 6)[1].mul_(x.view(2, 6)[0])
        return y.square()

    assert gradcheck(function, leaf(3, 4)) and gradgradcheck(function, leaf(3, 4))


# version counters


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("mul", lambda y: y * y),
        ("log", lambda y: y.log()),
        ("pow", lambda y: y**1.7),
        ("matmul", lambda y: y[None] @ y[:, None]),
        ("sin", lambda y: flow.sin(y[1:])),
        ("where", lambda y: flow.where(y > 0, y, 0.0)),
    ],
)
def test_a_saved_input_that_was_changed_is_an_error(name, function):
    x = leaf(3)
    y = x * 1
    z = function(y)
    if name == "where":
        z.grad_fn.saved[0].logical_not_()
    else:
        y.add_(1)
    with pytest.raises(AutogradError, match=rf"{name}: a tensor of shape .*in-place.*clone"):
        z.sum().backward()


def test_the_error_names_the_op_and_the_remedy():
    x = leaf(3)
    y = x * 1
    z = y.exp()
    z.add_(1)
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    for words in ("exp", "(3,)", "version 1, expected 0", "x.clone()", "out-of-place"):
        assert words in str(caught.value)


def test_a_write_through_any_alias_is_seen():
    for alias in (
        lambda y: y,
        lambda y: y[0],
        lambda y: y.detach(),
        lambda y: y.t()[1:],
        lambda y: y.view(-1).detach()[2:],
    ):
        x = leaf(2, 3)
        y = x * 1
        z = y * y
        with flow.no_grad():
            alias(y).add_(1)
        with pytest.raises(AutogradError, match="mul: a tensor of shape .2, 3. .*version 1, expected 0"):
            z.sum().backward()


def test_a_change_that_nobody_saved_is_fine():
    x = leaf(3)
    y = x * 2
    z = y + 1
    y.add_(5)
    z.sum().backward()
    assert_same(x.grad, np.full(3, 2.0))


def test_a_change_before_saving_is_fine():
    x = leaf(3)
    y = x * 2
    y.add_(5)
    (y * y).sum().backward()
    assert_close(x.grad, 4 * (2 * x.detach().numpy() + 5))


def test_only_the_needed_operand_is_watched():
    x = leaf(3)
    constant = flow.ones(3, dtype=flow.float64)
    y = x * 1
    z = y * constant
    y.zero_()  # the gradient of y needs the constant, not y
    z.sum().backward()
    assert_same(x.grad, np.ones(3))


# refusals


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.zero_(),
        lambda x: x[0].mul_(2),
        lambda x: x.t().exp_(),
        lambda x: x.__setitem__(0, 1.0),
    ],
)
def test_a_leaf_that_requires_grad_is_not_changed(write):
    x = leaf(2, 2)
    before = x.detach().numpy().copy()
    with pytest.raises(
        AutogradError, match=r"leaf tensor that requires grad is changed in place.*no_grad.*x.clone\(\)"
    ):
        write(x)
    assert_same(x.detach(), before)
    with flow.no_grad():
        write(x)
    assert x.is_leaf and x.requires_grad and (x.detach().numpy() != before).any()


def test_results_that_do_not_fit():
    x = flow.zeros(3)
    with pytest.raises(ShapeError, match=r"add_: the result of shape \(2, 3\) does not fit into \(3,\)"):
        x.add_(flow.ones(2, 3))
    with pytest.raises(DTypeError, match="add_: the result of miniflow.float32 cannot be written into miniflow.int64"):
        flow.zeros(3, dtype=flow.int64).add_(1.5)
    with pytest.raises(DTypeError, match="cannot be written into miniflow.bool"):
        flow.zeros(3, dtype=flow.bool).add_(1)
    with pytest.raises(DTypeError, match=r"div_.*x.to\(...\)"):
        flow.ones(3, dtype=flow.int32).div_(2)
    with pytest.raises(ShapeError):
        x.copy_(flow.ones(4))
    assert x.tolist() == [0.0, 0.0, 0.0] and x.version == 0


def test_dtypes_of_the_same_or_lower_category_are_written():
    x = flow.zeros(2, dtype=flow.float16)
    x.add_(flow.tensor([1.5, 2.5], dtype=flow.float64))
    assert_same(x, np.array([1.5, 2.5], np.float16))
    y = flow.zeros(2, dtype=flow.int8)
    y.add_(flow.tensor([100, 200]))
    assert_same(y, np.array([100, -56], np.int8))


def test_mixed_dtypes_in_place_keep_gradients():
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    w = flow.tensor([3.0, 5.0], dtype=flow.float64, requires_grad=True)
    y = x * 1
    y.mul_(w)
    assert y.dtype is flow.float32
    y.sum().backward()
    assert_same(x.grad, np.array([3, 5], np.float32))
    assert_same(w.grad, np.array([1.0, 2.0]))
