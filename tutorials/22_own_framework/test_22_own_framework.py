"""The checks of lesson 22: miniflow in float64, NumPy, and losses of a training run that NumPy repeats."""

import numpy as np
import pytest

import miniflow as flow
from tutorials import drawn, same

F = flow.nn.functional
MAY_NOT_CALL = {f"22.{k}": ["nn", "optim", "torch"] for k in range(1, 7)}


def gradients(impl, result, cotangent, inputs):
    """The gradients of the sum of result * cotangent for inputs, by the student's engine."""
    engine = impl.mine.autograd
    engine.backward(engine.total(engine.mul(result, impl.Variable(cotangent))))
    return [v.grad for v in inputs]


def variables(impl, rng, *shapes):
    return [impl.Variable(drawn(rng, *shape, dtype=np.float64)) for shape in shapes]


def tensors(inputs):
    return [flow.tensor(v.value, requires_grad=True) for v in inputs]


@pytest.mark.task("22.1")
@pytest.mark.parametrize("stride, padding", [(1, 0), (2, 1), (3, 2)])
def test_convolution(impl, rng, stride, padding):
    inputs = variables(impl, rng, (2, 3, 7, 8), (4, 3, 3, 2), (4,))
    given = tensors(inputs)
    y, wanted = impl.conv2d(*inputs, stride, padding), F.conv2d(*given, stride=stride, padding=padding)
    what = f"conv2d with stride {stride} and padding {padding}"
    same(y.value, wanted.detach().numpy(), what, "call conv2d_unfold with the values of the variables", rtol=1e-9)
    cotangent = drawn(rng, *y.value.shape, dtype=np.float64)
    wanted.backward(flow.tensor(cotangent))
    found = gradients(impl, y, cotangent, inputs)
    hint = "pull returns the gradients in the order of the parents"
    for name, got, tensor in zip(("x", "weight", "bias"), found, given):
        same(got, tensor.grad.numpy(), f"the gradient of {name} of {what}", hint, rtol=1e-9)


ONE = {
    "squareplus": (lambda x: (x + (x * x + 0.1).sqrt()) / 2, (3, 5), "squareplus_grad_x takes dy, x, b and the result"),
    "flatten": (lambda x: x.flatten(1), (3, 2, 4, 5), "the gradient has the shape of x"),
    "transpose": (lambda x: x.T, (3, 5), "the gradient is transposed back"),
}


@pytest.mark.task("22.2")
@pytest.mark.parametrize("name", ONE)
def test_one_input(impl, rng, name):
    function, shape, hint = ONE[name]
    inputs = variables(impl, rng, shape)
    (given,) = tensors(inputs)
    y, wanted = getattr(impl, name)(*inputs), function(given)
    same(y.value, wanted.detach().numpy(), f"{name} of shape {shape}", hint, rtol=1e-6)
    cotangent = drawn(rng, *y.value.shape, dtype=np.float64)
    wanted.backward(flow.tensor(cotangent))
    (found,) = gradients(impl, y, cotangent, inputs)
    same(found, given.grad.numpy(), f"the gradient of {name}", hint, rtol=1e-6)


@pytest.mark.task("22.3")
@pytest.mark.parametrize("count, classes, size", [(7, 5, 1), (4, 3, 900)])
def test_loss(impl, rng, count, classes, size):
    (logits,) = variables(impl, rng, (count, classes))
    logits.value *= size
    labels = rng.integers(0, classes, count)
    x = logits.value - logits.value.max(1, keepdims=True)
    wanted = np.mean(np.log(np.exp(x).sum(1)) - x[np.arange(count), labels])
    what = f"cross_entropy of {count} rows with logits up to {size}"
    loss = impl.cross_entropy(logits, labels)
    same(np.asarray(loss.value), np.asarray(wanted), what, "the loss of lesson 4", rtol=1e-6)
    shares = np.exp(x) / np.exp(x).sum(1, keepdims=True) - np.eye(classes)[labels]
    impl.mine.autograd.backward(impl.mine.autograd.mul(loss, impl.Variable(3.0)))
    hint = "(softmax - 1 at the label) / rows, times g; take the largest logit away before exp"
    same(logits.grad, 3 * shares / count, f"3 times the gradient of {what}", hint, rtol=1e-6, atol=1e-9)


@pytest.mark.task("22.4")
def test_linear(impl, rng):
    flow.manual_seed(int(rng.integers(1000)))
    first, second = impl.Linear(30, 20), impl.Linear(30, 20)
    shapes = [p.value.shape for p in first.parameters()]
    same(shapes, [(20, 30), (20,)], "shapes of the parameters of Linear(30, 20)", "weight, then bias")
    assert first.parameters()[0] is first.weight and first.parameters()[1] is first.bias, "parameters(): the variables"
    for p, q in zip(first.parameters(), second.parameters()):
        largest = abs(p.value).max()
        assert 0.6 * 30**-0.5 < largest <= 1.001 * 30**-0.5, (
            f"Linear(30, 20): expected numbers up to 0.18, got {largest:.3f}"
        )
        assert not np.array_equal(p.value, q.value), "two layers begin with the same numbers"
    (x,) = variables(impl, rng, (4, 30))
    y = first(x)
    same(y.value, x.value @ first.weight.value.T + first.bias.value, "Linear(30, 20)(x)", "x W^T + b", rtol=1e-9)
    g = drawn(rng, 4, 20, dtype=np.float64)
    found = gradients(impl, y, g, [x, first.weight, first.bias])
    for name, got, wanted in zip(("x", "W", "b"), found, (g @ first.weight.value, g.T @ x.value, g.sum(0))):
        same(
            got,
            wanted,
            f"the gradient of {name} of Linear(30, 20)",
            "call operators, so that all is recorded",
            rtol=1e-9,
        )


@pytest.mark.task("22.4")
def test_convolutional_layer(impl, rng):
    layer = impl.Conv2d(3, 10, 4, 2, 1)
    shapes = [p.value.shape for p in layer.parameters()]
    same(shapes, [(10, 3, 4, 4), (10,)], "shapes of the parameters of Conv2d(3, 10, 4, ...)")
    largest = abs(layer.weight.value).max()
    assert 0.8 * 48**-0.5 < largest <= 1.001 * 48**-0.5, f"Conv2d: weights up to 1 / sqrt(3 * 4 * 4), got {largest:.3f}"
    (x,) = variables(impl, rng, (2, 3, 6, 7))
    y, (tx, *rest) = layer(x), tensors([x, *layer.parameters()])
    wanted = F.conv2d(tx, *rest, stride=2, padding=1)
    same(y.value, wanted.detach().numpy(), "Conv2d(3, 10, 4, stride=2, padding=1)", rtol=1e-9)
    g = drawn(rng, *y.value.shape, dtype=np.float64)
    wanted.backward(flow.tensor(g))
    (got,) = gradients(impl, y, g, [layer.weight])
    same(got, rest[0].grad.numpy(), "the gradient of the weight of Conv2d", rtol=1e-9)


@pytest.mark.task("22.5")
@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_optimizer(impl, rng, momentum):
    inputs = variables(impl, rng, (3, 4), (5,), (2,))
    values, velocities = [v.value.copy() for v in inputs], [0.0, 0.0]
    optimizer = impl.Optimizer(inputs, lambda tensors: impl.mine.training.SGD(tensors, lr=9.0, momentum=momentum))
    for rate in (0.1, 0.5, 0.2):
        for k, v in enumerate(inputs[:2]):
            v.grad = drawn(rng, *v.value.shape, dtype=np.float64)
            velocities[k] = momentum * velocities[k] + v.grad
            values[k] = values[k] - rate * velocities[k]
        optimizer.step(rate)
        hint = "gradients to the tensors, lr, step, and the numbers back into value"
        for v, wanted in zip(inputs, values):
            same(v.value, wanted, f"a value after a step of SGD with rate {rate}, momentum {momentum}", hint, rtol=1e-9)
        optimizer.zero_grad()
        assert all(v.grad is None for v in inputs), "zero_grad: expected grad None for every variable"
        assert isinstance(inputs[0].value, np.ndarray), "value stays a NumPy array"


@pytest.mark.task("22.6")
def test_training(impl, rng):
    rows, size, classes = 10, 6, 3
    images, labels = drawn(rng, rows, 1, 2, 3), rng.integers(0, classes, rows)
    batches = [(images[k : k + 4], labels[k : k + 4]) for k in range(0, rows, 4)]
    weight = impl.Variable(drawn(rng, size, classes, dtype=np.float64))
    w, wanted, rate_of = weight.value.copy(), [], lambda step: 0.3 + 0.1 * step
    for step, (x, y) in enumerate(batches, start=5):
        x = x.reshape(len(x), size).astype(np.float64)
        shares = np.exp(x @ w) / np.exp(x @ w).sum(1, keepdims=True)
        wanted.append(float(-np.log(shares[np.arange(len(y)), y]).mean()))
        w = w - rate_of(step) * x.T @ (shares - np.eye(classes)[y]) / len(y)
    model = lambda x: impl.mine.autograd.matmul(impl.flatten(x), weight)  # noqa: E731
    optimizer = impl.Optimizer([weight], lambda tensors: impl.mine.training.SGD(tensors, lr=9.0))
    weight.grad = np.ones((size, classes))  # what another step left
    got = impl.train_epoch(model, optimizer, [(flow.tensor(x), flow.tensor(y)) for x, y in batches], rate_of, 5)
    same(
        np.array(got),
        np.array(wanted),
        "the losses of train_epoch",
        "step k has rate_of(k); forget gradients",
        rtol=1e-6,
    )
    same(weight.value, w, "the weight after train_epoch", "step k has rate_of(k); forget gradients", rtol=1e-6)
    answers = (images.reshape(rows, size).astype(np.float64) @ w).argmax(1)
    half = np.where(np.arange(rows) % 3 == 0, (answers + 1) % classes, answers)
    same(impl.accuracy(model, images, half), 0.6, "accuracy, where 4 of 10 answers are wrong", "the largest logit")


@pytest.mark.task("22.6")
def test_digits(impl):
    """All of it, for one epoch."""
    flow.manual_seed(0)
    images, labels = (x.numpy() for x in flow.data.mnist("train", normalize=False).tensors)
    model, data = impl.network(), impl.mine.data
    loader = data.Loader(data.Digits(images, labels), data.Shuffle(len(labels), 0), 50)
    make = lambda tensors: impl.mine.training.Adam(tensors, lr=9.0)  # noqa: E731
    optimizer = impl.Optimizer(model.parameters(), make)
    losses = impl.train_epoch(model, optimizer, loader, lambda step: 0.003, 0)
    found = impl.accuracy(model, images, labels)
    same(len(losses), 80, "the number of losses of an epoch of 4,000 digits in batches of 50")
    assert found > 0.6, f"accuracy after an epoch: expected more than 60 %, got {found:.0%}"
