"""The checks of lesson 4: NumPy in float64, and problems whose answers are known on paper."""

import numpy as np
import pytest

import miniflow as flow
from tutorials import same

MAY_NOT_CALL = {
    "4.1": ["nn", "linear"],
    "4.2": ["nn", "cross_entropy", "nll_loss", "log_softmax", "softmax", "logsumexp"],
    "4.3": ["optim"],
    "4.4": ["optim"],
}


def drawn(rng, *shape):
    """Numbers of both signs, none near 0."""
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))


def parameter(values):
    return flow.tensor(values, requires_grad=True)


@pytest.mark.task("4.1")
@pytest.mark.parametrize("inputs, outputs", [(9, 400), (100, 50), (1, 700)])
def test_initial_values(impl, inputs, outputs):
    layer, k = impl.Linear(inputs, outputs), inputs**-0.5
    for name, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
        tensor, what = getattr(layer, name, None), f"{name} of Linear({inputs}, {outputs})"
        if not isinstance(tensor, flow.Tensor):
            raise AssertionError(f"{what}: expected a tensor, got {tensor!r}")
        same((tuple(tensor.shape), tensor.dtype), (shape, flow.float32), f"shape and dtype of {what}")
        found = tensor.requires_grad, tensor.is_leaf
        same(found, (True, True), f"(requires_grad, is_leaf) of {what}", "call it last")
        values = tensor.detach().numpy().astype(np.float64)
        spread = f"expected numbers between -{k:.3f} and {k:.3f}, got {values.min():.3f} to {values.max():.3f}"
        # of 400 numbers, none above 0.9 k: once in 10^9; of 50, none above 0.2 k: once in 10^11
        tight = 0.9 if values.size > 300 else 0.2
        if not (tight * k < -values.min() < 1.001 * k and tight * k < values.max() < 1.001 * k):
            raise AssertionError(f"{what}: {spread}. Hint: k is 1 / sqrt(in_features)")
        if values.size > 300 and not 0.4 * k < np.abs(values).mean() < 0.6 * k:
            raise AssertionError(f"{what}: {spread}, of mean size {np.abs(values).mean():.3f}. Hint: draw uniformly")
    same(np.array_equal(layer.bias.numpy(), impl.Linear(inputs, outputs).bias.numpy()), False, "two layers are equal")


@pytest.mark.task("4.1")
def test_linear(impl, rng):
    x, g = (drawn(rng, 4, n).astype(np.float32) for n in (3, 5))
    layer = impl.Linear(3, 5)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    names = {id(layer.weight): "weight", id(layer.bias): "bias"}
    found = [names.get(id(p), "another tensor") for p in layer.parameters()]
    same(found, ["weight", "bias"], "parameters() of Linear(3, 5)", "the tensors themselves, no copies")
    y = layer(flow.tensor(x))
    same(y, x @ w.T + b, "Linear(3, 5) of x (4, 3)", "the weight is (out_features, in_features)", atol=1e-5)
    y.backward(flow.tensor(g))
    same(layer.weight.grad, g.T @ x, "the gradient of the weight", "use tensor operations", atol=1e-5)
    same(layer.bias.grad, g.sum(0), "the gradient of the bias", "use tensor operations", atol=1e-5)


@pytest.mark.task("4.1")
def test_sequential(impl, rng):
    x = drawn(rng, 4, 3)
    first, second = flow.nn.Linear(3, 5).double(), flow.nn.Linear(5, 2).double()
    inner = impl.Sequential(flow.tanh, second)
    model = impl.Sequential(first, inner, flow.exp)
    names = {id(p): f"{k}.{name}" for k, layer in enumerate((first, second)) for name, p in layer.named_parameters()}
    w1, b1, w2, b2 = (p.detach().numpy() for layer in (first, second) for p in layer.parameters())
    got = model(flow.tensor(x))
    same(got, np.exp(np.tanh(x @ w1.T + b1) @ w2.T + b2), "Sequential of Linear, (tanh, Linear), exp", "in order")
    found = [names.get(id(p), "another tensor") for p in model.parameters()]
    hint = "those of all layers in order; a function has none"
    same(found, ["0.weight", "0.bias", "1.weight", "1.bias"], "parameters() of two nested Sequential", hint)


def softmax_loss(x, labels):
    """The mean cross-entropy of logits in float64, and its gradient."""
    x = x.astype(np.float64)
    rows, e = np.arange(len(x)), np.exp(x - x.max(1, keepdims=True))
    total = e.sum(1)
    gradient = e / total[:, None]
    gradient[rows, labels] -= 1
    loss = np.log(total) - (x - x.max(1, keepdims=True))[rows, labels]
    return loss.mean(), gradient / len(x)


def compare_loss(impl, rng, x, labels, what, hint):
    logits, g = parameter(x), drawn(rng).astype(x.dtype)
    loss, gradient = softmax_loss(x, labels)
    got = impl.cross_entropy(logits, flow.tensor(labels))
    same(got, np.asarray(loss, x.dtype), f"cross_entropy {what}", hint, rtol=1e-4, atol=1e-5)
    got.backward(flow.tensor(g))
    wanted = (gradient * g).astype(x.dtype)
    same(logits.grad, wanted, f"gradient of cross_entropy {what}, times {g:.3f}", hint, rtol=1e-4, atol=1e-6)
    same(logits, x, f"the logits after cross_entropy {what}", "do not change them in place")


@pytest.mark.task("4.2")
@pytest.mark.parametrize("rows, classes, dtype", [(4, 3, np.float32), (1, 6, np.float64), (5, 1, np.float64)])
def test_cross_entropy(impl, rng, rows, classes, dtype):
    x, labels = 2 * drawn(rng, rows, classes).astype(dtype), rng.integers(0, classes, rows)
    compare_loss(impl, rng, x, labels, f"of logits {x.round(2).tolist()}, labels {labels.tolist()}", "the mean of rows")


@pytest.mark.task("4.2")
@pytest.mark.parametrize("logits", [[1000.0, 0.0, 998.0], [-1000.0, -1000.0, -1001.0], [0.0, -1000.0, 1000.0]])
def test_cross_entropy_of_large_logits(impl, rng, logits):
    for dtype in (np.float32, np.float64):
        x, labels = np.asarray([logits, logits[::-1], [1.0, 2.0, 3.0]], dtype), rng.integers(0, 3, 3)
        hint = "exp(1000) is inf: subtract the maximum of each row first"
        compare_loss(impl, rng, x, labels, f"of logits {x.tolist()}, labels {labels.tolist()}", hint)


def follow(optimizer_of, update, rng, steps, what, hint):
    """Compare some steps of an optimizer with `update(p, g, state)`, which returns the new p; three parameters.

    The second of them never has a gradient, and that of the others is written into the same tensors in each step.
    """
    values = [drawn(rng, 2, 3), drawn(rng, 4), drawn(rng, 2, 3)]
    parameters = [parameter(v) for v in values]
    optimizer = optimizer_of(iter(parameters))
    states, gradients = [{}, {}, {}], [flow.tensor(drawn(rng, 2, 3)), None, flow.tensor(drawn(rng, 2, 3))]
    for p, g in zip(parameters, gradients):
        p.grad = g
    for number in range(1, steps + 1):
        drawn_now = [drawn(rng, 2, 3), None, drawn(rng, 2, 3)]
        for k in (0, 2):
            gradients[k].copy_(flow.tensor(drawn_now[k]))
            values[k] = update(values[k], drawn_now[k], states[k])
        optimizer.step()
        for k, p in enumerate(parameters):
            place = f"{what}: parameter {k} after {number} steps"
            same(p, values[k], place, hint if k != 1 else "one without gradient stays", rtol=1e-9, atol=1e-12)
            same((p.requires_grad, p.is_leaf), (True, True), f"(requires_grad, is_leaf) of {place}", "use no_grad")
            if k != 1:
                same(p.grad, drawn_now[k], f"{what}: the gradient after step {number}", "do not change it")


@pytest.mark.task("4.3")
@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.37])
def test_sgd(impl, rng, momentum):
    lr = float(rng.uniform(0.1, 0.5))

    def update(p, g, state):
        state["v"] = momentum * state.get("v", 0) + g
        return p - lr * state["v"]

    hint = "v <- momentum v + g, one v for each parameter; then p is changed in place"
    what = f"SGD(parameters, {lr:.3f}, momentum={momentum})"
    follow(lambda parameters: impl.SGD(parameters, lr, momentum=momentum), update, rng, 5, what, hint)


@pytest.mark.task("4.3")
def test_zero_grad(impl, rng):
    parameters = [parameter(drawn(rng, 3)) for _ in range(3)]
    for p in parameters[1:]:
        p.grad = flow.tensor(drawn(rng, 3))
    impl.SGD(parameters, 0.1).zero_grad()
    same([p.grad is None for p in parameters], [True] * 3, "grad is None for each parameter after zero_grad()")


@pytest.mark.task("4.4")
@pytest.mark.parametrize("betas, eps", [((0.9, 0.999), 1e-8), ((0.5, 0.7), 0.3), ((0.0, 0.9), 0.1)])
def test_adam(impl, rng, betas, eps):
    lr = float(rng.uniform(0.1, 0.5))

    def update(p, g, state):
        t = state["t"] = state.get("t", 0) + 1
        for name, beta, new in (("m", betas[0], g), ("s", betas[1], g**2)):
            state[name] = beta * state.get(name, 0) + (1 - beta) * new
        mean, square = (state[name] / (1 - beta**t) for name, beta in (("m", betas[0]), ("s", betas[1])))
        return p - lr * mean / (np.sqrt(square) + eps)

    hint = "divide m and s by 1 - beta^t, with t = 1 in the first step; add eps after the root"
    what = f"Adam(parameters, {lr:.3f}, {betas}, {eps})"
    follow(lambda parameters: impl.Adam(parameters, lr, betas=betas, eps=eps), update, rng, 6, what, hint)


@pytest.mark.task("4.4")
def test_first_step_of_adam(impl, rng):
    start, g, lr = drawn(rng, 3), drawn(rng, 3) * 10.0 ** rng.integers(-3, 4, 3), 0.25
    p = parameter(start)
    optimizer = impl.Adam([p], lr)
    p.grad = flow.tensor(g)
    optimizer.step()
    wanted, what = start - lr * np.sign(g), f"{start} after one step of Adam, gradient {g}"
    same(p, wanted, what, "lr against the sign, whatever the size", rtol=1e-4)


@pytest.mark.task("4.5")
def test_accuracy(impl, rng):
    logits = rng.standard_normal((37, 5)).astype(np.float32)
    labels = np.where(rng.random(37) < 0.6, logits.argmax(1), rng.integers(0, 5, 37))
    recorded = []

    def model(x):
        recorded.append(flow.is_grad_enabled())
        return flow.tensor(logits - 100) if x == "the inputs" else None

    wanted = float((logits.argmax(1) == labels).mean())
    same(impl.accuracy(model, "the inputs", flow.tensor(labels)), wanted, "accuracy for 37 inputs and 5 classes")
    same(recorded, [False], "whether the model was called with gradients recorded", "use no_grad, and one call")


class Batches:
    """Other numbers each time it is looped over, as a loader that shuffles."""

    def __init__(self, rng, count):
        self.rng, self.count, self.seen = rng, count, []

    def __iter__(self):
        for _ in range(self.count):
            self.seen.append(drawn(self.rng, 3, 2))
            yield flow.tensor(np.asarray(2.0)), flow.tensor(self.seen[-1])


@pytest.mark.task("4.5")
def test_each_step(impl, rng):
    start, lr, batches = drawn(rng, 2), 0.3, Batches(rng, 3)
    p = parameter(start)
    p.grad = flow.tensor(drawn(rng, 2))  # left from before
    optimizer = flow.optim.SGD([p], lr=lr)

    def loss_of(prediction, target):
        return ((prediction - target) ** 2).sum(1).mean() / 2

    got = impl.train(lambda x: p * x / 2, loss_of, optimizer, batches, 4)
    same(len(batches.seen), 12, "the batches that were read in 4 epochs of 3", "loop over batches in each epoch")
    value, wanted = start, []
    for targets in batches.seen:  # the gradient of this loss is value - mean of targets
        wanted.append(float(((value - targets) ** 2).sum(1).mean() / 2))
        value = value - lr * (value - targets.mean(0))
    hint = "one step for each batch, with the gradient of this batch alone: zero_grad comes before backward"
    same(p, value, f"a parameter that started at {start}, after 12 steps", hint, rtol=1e-9)
    same([type(loss) for loss in got], [float] * 12, "the types of the 12 losses", "item() makes a number")
    same(np.asarray(got), np.asarray(wanted), "the losses of 12 steps", "each before its step", rtol=1e-9)


@pytest.mark.task("4.5")
def test_least_squares(impl, rng):
    inputs = np.linalg.qr(rng.standard_normal((7, 3)))[0]  # orthonormal columns: the loss has the same slope everywhere
    targets = drawn(rng, 7)
    wanted = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    p = parameter(np.zeros(3))
    batches = [(flow.tensor(inputs), flow.tensor(targets))]
    optimizer = flow.optim.SGD([p], lr=0.25)
    impl.train(lambda x: x @ p, lambda y, t: ((y - t) ** 2).sum(), optimizer, batches, 40)
    same(p, wanted, "least squares by 40 steps", "a problem with one minimum: NumPy knows it", rtol=1e-6, atol=1e-9)
