"""The checks of lesson 2: formulas, finite differences, and programs of shapes that break simple solutions."""

import numpy as np
import pytest

from tutorials import same

STEP = 1e-6
MAY_NOT_CALL = dict.fromkeys(["2.1", "2.2", "2.3", "2.4", "2.5", "2.6"], ["miniflow", "flow", "torch", "autograd"])


def pulled(impl, what, build, inputs, rng, hint):
    """Compare the value and the gradients of one rule with finite differences, for a random gradient of the result."""
    variables = [impl.Variable(x) for x in inputs]
    result = build(*variables)
    if not isinstance(result, impl.Variable):
        raise AssertionError(f"{what}: expected a Variable, got {result!r}")
    g = drawn(rng, *result.value.shape)
    if tuple(result.parents) != tuple(variables):
        raise AssertionError(f"{what}: expected its operands as parents, got {result.parents}. Hint: {hint}")
    parts = result.pull(g)
    for k, x in enumerate(inputs):
        wanted = np.zeros(x.shape)
        for place in np.ndindex(*x.shape):
            values = []
            for sign in (1, -1):
                shifted = [np.array(v) for v in inputs]
                shifted[k][place] += sign * STEP
                values.append(build(*(impl.Variable(v) for v in shifted)).value)
            wanted[place] = ((values[0] - values[1]) * g).sum() / (2 * STEP)
        got = np.asarray(parts[k], np.float64)
        same(got, wanted, f"{what}: gradient of operand {k}", hint, rtol=1e-4, atol=1e-6)


def drawn(rng, *shape):
    """Numbers away from 0, where relu has a kink."""
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape))


@pytest.mark.task("2.1")
def test_sum_and_product(impl, rng):
    a, b = drawn(rng), drawn(rng)
    same(impl.add(impl.Variable(a), impl.Variable(b)).value, np.asarray(a + b), f"add({a}, {b})")
    same(impl.mul(impl.Variable(a), impl.Variable(b)).value, np.asarray(a * b), f"mul({a}, {b})")
    pulled(impl, "add(a, b)", impl.add, [a, b], rng, "a sum passes the gradient on")
    pulled(impl, "mul(a, b)", impl.mul, [a, b], rng, "the slope for a is b")
    pulled(impl, "mul of arrays", impl.mul, [drawn(rng, 2, 3), drawn(rng, 2, 3)], rng, "element by element")


@pytest.mark.task("2.2")
@pytest.mark.parametrize("name", ["exp", "power", "relu"])
def test_functions_of_one_number(impl, rng, name):
    x = drawn(rng, 2, 3)
    k = int(rng.integers(2, 5))
    build = (lambda a: impl.power(a, k)) if name == "power" else getattr(impl, name)
    wanted = {"exp": np.exp(x), "power": x**k, "relu": np.where(x > 0, x, 0)}[name]
    same(build(impl.Variable(x)).value, wanted, f"{name}({x.tolist()})")
    pulled(impl, name, build, [x], rng, "the gradient of the result, times the slope at the operand")
    pulled(impl, f"{name} of a number", build, [np.asarray(-0.75)], rng, "the slope may be 0")
    if name == "relu":
        (got,) = impl.relu(impl.Variable([0.0, 2.0])).pull(np.asarray([3.0, 5.0]))
        same(
            np.asarray(got),
            np.asarray([0.0, 5.0]),
            "relu at [0, 2]: the gradient",
            "at 0 the slope is 0, by convention",
        )


@pytest.mark.task("2.3")
def test_order(impl):
    a, b = impl.Variable(1.0), impl.Variable(2.0)
    c = impl.Variable(3.0, (a, b))
    d = impl.Variable(4.0, (c, a))
    e = impl.Variable(5.0, (c, d))
    nodes = {id(v): name for v, name in zip((a, b, c, d, e), "abcde")}
    got = [nodes.get(id(v), "?") for v in impl.order(e)]
    if sorted(got) != list("abcde"):
        raise AssertionError(f"order(e): expected each of a, b, c, d, e once, got {got}")
    for child, parents in {"c": "ab", "d": "ca", "e": "cd"}.items():
        late = [p for p in parents if got.index(p) > got.index(child)]
        if late:
            raise AssertionError(f"order(e) is {got}: expected {late} before {child}, which was computed from it")


@pytest.mark.task("2.3")
def test_doublings_and_a_long_chain(impl):
    x = impl.Variable(1.0)
    for _ in range(18):
        x = impl.Variable(2 * x.value, (x, x))
    count = len(impl.order(x))
    hint = "a variable that was seen before is not visited again"
    same(count, 19, "len(order(x)) after 18 doublings, x = x + x", hint)
    for _ in range(5000):
        x = impl.Variable(x.value, (x,))
    try:
        count = len(impl.order(x))
    except RecursionError:
        what = "order of a chain of 5,000: too deep for recursion. Hint: keep a stack in a list"
        raise AssertionError(what) from None
    same(count, 5019, "len(order(x)) of a chain of 5,000")


@pytest.mark.task("2.4")
def test_diamond(impl, rng):
    a, b = (impl.Variable(v) for v in drawn(rng, 2))
    y = impl.add(impl.mul(a, b), impl.mul(a, impl.mul(a, a)))  # a b + a^3
    impl.backward(y)
    hint = "a gradient arrives on every path: add them up, before you go on"
    for v, wanted in ((a, b.value + 3 * a.value**2), (b, a.value), (y, 1.0)):
        same(np.asarray(v.grad), np.asarray(wanted), f"gradients of a b + a^3 at {a.value}, {b.value}", hint)
    impl.backward(y)
    same(np.asarray(b.grad), np.asarray(2 * a.value), "b.grad after backward twice", "grad adds up from call to call")


@pytest.mark.task("2.4")
def test_deep_programs(impl):
    x = first = impl.Variable(1.0)
    for _ in range(18):
        x = impl.add(x, x)
    impl.backward(x)
    same(np.asarray(first.grad), np.asarray(2.0**18), "the gradient of 18 doublings")
    x = first = impl.Variable(1.0)
    for _ in range(5000):
        x = impl.add(x, impl.Variable(0.001))
    impl.backward(x)
    same(np.asarray(first.grad), np.asarray(1.0), "the gradient of a chain of 5,000 sums")


@pytest.mark.task("2.4")
def test_broadcast(impl, rng):
    x, bias, scale = drawn(rng, 4, 3), drawn(rng, 3), drawn(rng, 4, 1)
    xv, bv, sv = (impl.Variable(v) for v in (x, bias, scale))
    y = impl.mul(impl.add(xv, bv), sv)
    g = drawn(rng, 4, 3)
    root = impl.Variable((y.value * g).sum(), (y,), lambda one: (one * g,))
    impl.backward(root)
    hint = "an operand that was repeated gets the sum of its gradients: use sum_to"
    same(np.asarray(bv.grad), (g * scale).sum(0), "gradient of a bias of shape (3,)", hint)
    same(np.asarray(sv.grad), (g * (x + bias)).sum(1, keepdims=True), "gradient of a scale of shape (4, 1)", hint)


@pytest.mark.task("2.5")
def test_matrices(impl, rng):
    a, b = drawn(rng, 2, 3), drawn(rng, 3, 4)
    same(impl.matmul(impl.Variable(a), impl.Variable(b)).value, a @ b, "matmul of (2, 3) and (3, 4)")
    pulled(impl, "matmul", impl.matmul, [a, b], rng, "compare the shapes: the gradient of a is (2, 3)")
    same(impl.total(impl.Variable(a)).value, np.asarray(a.sum()), "total of (2, 3)")
    pulled(impl, "total", impl.total, [a], rng, "each element counts once")


@pytest.mark.task("2.6")
def test_descent(impl, rng):
    start, target, rate = drawn(rng, 3), drawn(rng, 3), 0.1
    p = impl.Variable(start.copy())

    def loss_of():
        error = impl.add(p, impl.Variable(-target))
        return impl.total(impl.mul(error, error))

    losses = impl.descend([p], loss_of, rate, 7)
    factor = 1 - 2 * rate  # of the error, in each step of this loss
    wanted = [float(((start - target) ** 2).sum() * factor ** (2 * k)) for k in range(7)]
    same(np.asarray(losses), np.asarray(wanted), "the losses of 7 steps", "are the gradients those of this step alone?")
    same(p.value, target + factor**7 * (start - target), "the parameter after 7 steps", "one step for each loss")
