"""The checks of lesson 5: NumPy's results, miniflow's gradient checker, and counted accesses of the kernel."""

import os

os.environ.setdefault("MINIFLOW_CUDA", "host")  # CUDA kernels run on the CPU, and can be checked

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import miniflow as flow
from miniflow.autograd import gradcheck, gradgradcheck
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import DTypeError, ShapeError
from miniflow.formulas.scalar import sqrt, where
from miniflow.hostcuda import cuda
from tutorials import drawn, refused, same
from tutorials.implementation import load
from tutorials.launches import launch

register = load(Path(__file__).with_name("register.py"))
CASES = [("float32", shapes) for shapes in [((3, 5), (3, 5)), ((4, 1, 3), (2, 1)), ((0, 3), (3,)), ((7,), None)]]
CASES += [("float64", ((4, 1), (3,))), ("bfloat16", ((5,), (5,)))]
ERROR = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 1e-2}  # relative


def signed(rng, *shape):
    """Numbers of both signs, away from 0."""
    return rng.uniform(0.3, 3, shape) * rng.choice([-1.0, 1.0], shape)


def on_paper(x, b):
    """The formula as it is written on paper, in more digits than float64 has."""
    x, b = np.asarray(x, np.longdouble), np.asarray(b, np.longdouble)
    return np.float64((x + np.sqrt(x * x + b)) / 2)


def to_float64(tensor):
    return tensor.detach().cpu().double().numpy()


def close(got, wanted, kind, what, hint=""):
    """Compare the tensor `got`, of the dtype `kind`, with NumPy's result in float64."""
    same(str(got.dtype).rpartition(".")[2], kind, f"the dtype of {what}")
    same(to_float64(got), np.asarray(wanted), what, hint, rtol=ERROR[kind], atol=0.0 if "squareplus" in what else 1e-5)


@pytest.mark.task("5.1")
@pytest.mark.parametrize("kind, shapes", CASES)
def test_squareplus(impl, rng, kind, shapes):
    x = flow.tensor(signed(rng, *shapes[0])).to(getattr(flow, kind))
    b = 2.5 if shapes[1] is None else flow.tensor(rng.uniform(1, 4, shapes[1])).to(x.dtype)
    wanted = on_paper(to_float64(x), b if shapes[1] is None else to_float64(b))
    with register.restored():
        squareplus = register.add_squareplus(impl.squareplus)
        what = f"squareplus in {kind} of x {shapes[0]} and b {shapes[1] or b}"
        close(squareplus(x, b), wanted, kind, what, "at x = 2, b = 5 it is (2 + 3) / 2")


@pytest.mark.task("5.1")
def test_far_from_zero(impl, rng):
    x, b = np.float32([-1e4, -3e3, -50, -1, -0.0, 0, 2, 1e4]), rng.uniform(1, 4, 8).astype(np.float32)
    with register.restored():
        got = register.add_squareplus(impl.squareplus)(flow.tensor(x), flow.tensor(b))
    what = f"squareplus of x {x.tolist()}"
    close(got, on_paper(x, b), "float32", what, "x + sqrt(x^2 + b) loses all digits where x is negative")


def right_formula(x, b):
    root = sqrt(b + x * x)
    return where(x < 0, b / (root - x) / 2, (root + x) / 2)


@pytest.mark.task("5.2")
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((4, 1), (3,))])
def test_gradients_of_squareplus(impl, rng, shapes):
    x = flow.tensor(signed(rng, *shapes[0]), requires_grad=True)
    b = flow.tensor(rng.uniform(1, 4, shapes[1]), requires_grad=True)
    seed = int(rng.integers(1000))
    with register.restored():
        squareplus = register.add_squareplus(right_formula, impl.squareplus_grad_x, impl.squareplus_grad_b)
        gradcheck(squareplus, [x, b], seed=seed)
        gradgradcheck(squareplus, [x, b], seed=seed)


@pytest.mark.task("5.2")
def test_gradients_far_from_zero(impl, rng):
    x, b, dy = np.float64([-1e4, -300, -1, 2, 1e4]), rng.uniform(1, 4, 5), signed(rng, 5)
    tensors = [flow.tensor(array.astype(np.float32), requires_grad=True) for array in (x, b)]
    with register.restored():
        squareplus = register.add_squareplus(right_formula, impl.squareplus_grad_x, impl.squareplus_grad_b)
        squareplus(*tensors).backward(flow.tensor(dy.astype(np.float32)))
    root = np.sqrt(x * x + b)
    what = "the gradient of {}, of squareplus at " + f"x {x.tolist()}"
    close(tensors[0].grad, dy / root * on_paper(x, b), "float32", what.format("x"), "the result is accurate: use it")
    close(tensors[1].grad, dy / root / 4, "float32", what.format("b"))


@pytest.mark.task("5.3")
@pytest.mark.parametrize("kind", [*ERROR, "float16"])
def test_shape_rule(impl, kind):
    dtype = getattr(flow, kind).numpy
    for shape in [(3, 5), (0, 2), (1, 1)]:
        shape_of_y, dtype_of_y = impl.Recurrence.infer(np.zeros(shape, dtype), np.zeros(shape, dtype))
        same(tuple(shape_of_y), shape, f"the shape that infer gives for two arrays {shape}")
        same(np.dtype(dtype_of_y), np.dtype(dtype), f"the dtype that infer gives for two arrays of {kind}")


@pytest.mark.task("5.3")
def test_what_is_refused(impl):
    infer = impl.Recurrence.infer
    for x, a in [((3, 5), (5, 3)), ((3, 5), (1, 5)), ((3, 5), (5,)), ((4,), (4,)), ((2, 3, 4), (2, 3, 4)), ((), ())]:
        call = partial(infer, np.zeros(x, np.float32), np.zeros(a, np.float32))
        refused(call, ShapeError, f"infer for shapes {x} and {a}", "recurrence: ", str(x), str(a))
    for x, a in [("float32", "float64"), ("int64", "int64"), ("bool", "bool"), ("float64", "int32")]:
        call = partial(infer, np.zeros((2, 2), x), np.zeros((2, 2), a))
        refused(call, DTypeError, f"infer for {x} and {a}", "recurrence")


def recurrence(x, a):
    """The definition: each y[t] is a sum over all earlier steps."""
    y = np.zeros(x.shape)
    for t in range(len(x)):
        for s in range(t + 1):
            y[t] += x[s] * a[s + 1 : t + 1].prod(0)
    return y


def judged(impl, x, a):
    """What miniflow computes with the kernels of `impl`; the shape rule is one of this test."""
    op = type("Recurrence", (Op,), {"infer": lambda x, a: (x.shape, x.dtype)})
    with register.restored():
        register.add_recurrence(op, impl.recurrence_cpu, impl.recurrence_cuda)
        return call(op, x, a)


@pytest.mark.task("5.4")
@pytest.mark.parametrize("shape", [(7, 3), (1, 4), (5, 1), (0, 3), (3, 0)])
def test_on_the_cpu(impl, rng, shape):
    for kind in (np.float32, np.float64):
        x, a = rng.standard_normal(shape).astype(kind), rng.uniform(-0.9, 0.9, shape[::-1]).astype(kind).T
        kept = x.copy(), a.copy()
        y = np.full(shape, np.nan, kind)
        impl.recurrence_cpu(y, x, a)
        what = f"recurrence_cpu of {shape}, {np.dtype(kind)}"
        same(y, recurrence(x, a).astype(kind), what, "y arrives full of NaN; before the first step the state is 0")
        same(x, kept[0], f"x after {what}", "inputs stay as they are")
        same(a, kept[1], f"a after {what}", "inputs stay as they are")


@pytest.mark.task("5.4")
def test_half_precision(impl, rng):
    x, a = [flow.tensor(signed(rng, 6, 3) / 4).to(flow.bfloat16) for _ in "xa"]
    close(judged(impl, x, a), recurrence(to_float64(x), to_float64(a)), "bfloat16", "the recurrence in bfloat16")


@pytest.mark.task("5.5")
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 70])
def test_kernel(impl, rng, columns):
    for steps in (5, 2):
        x, a = rng.standard_normal((steps, columns)).astype(np.float32), drawn(rng, steps, columns)
        given = [cuda.to_device(x), cuda.to_device(a), cuda.to_device(np.full_like(x, np.nan))]
        blocks = -(-columns // 32)
        what, hint = f"recurrence_kernel, {x.shape} in {blocks} blocks of 32 threads", "thread j goes through column j"
        counted = launch(impl.recurrence_kernel, given, blocks, 32, what, hint).total
        same(given[2].copy_to_host(), recurrence(x, a).astype(np.float32), what, hint)
        same(counted.global_loads, 2 * x.size, f"reads of {what}", "read x and a once, keep y[t - 1] in a variable")
        same(counted.global_stores, x.size, f"writes of {what}", "write each element once")


@pytest.mark.task("5.5")
@pytest.mark.parametrize("shape", [(3, 255), (3, 257), (0, 5)])
def test_on_a_device(impl, rng, shape):
    x, a = rng.standard_normal(shape).astype(np.float32), rng.uniform(-0.9, 0.9, shape).astype(np.float32)
    got = judged(impl, flow.tensor(x, device="cuda"), flow.tensor(a.T.copy(), device="cuda").T)
    close(got, recurrence(x, a), "float32", f"the recurrence of {shape} on a CUDA device, a being transposed")


@pytest.mark.task("5.6")
@pytest.mark.parametrize("shape", [(4, 3), (2, 5), (1, 2)])
def test_gradients_of_recurrence(impl, rng, shape, monkeypatch):
    def on_cpu(y, x, a):
        y[...] = recurrence(x, a)

    x, a = [flow.tensor(signed(rng, *shape) / 2, requires_grad=True) for _ in "xa"]
    seed = int(rng.integers(1000))
    monkeypatch.setattr(impl.Recurrence, "infer", staticmethod(lambda x, a: (x.shape, x.dtype)))
    with register.restored():
        register.add_recurrence(impl.Recurrence, on_cpu, None)
        gradcheck(impl.recurrence, [x, a], seed=seed, check_alive=shape[0] > 1)
        gradgradcheck(impl.recurrence, [x, a], seed=seed)
        first = impl.recurrence(x[:0], a[:0])
        gradients = flow.autograd.grad(first.sum() + 0 * x.sum() + 0 * a.sum(), [x, a])
    for name, found in zip("xa", gradients):
        same(to_float64(found), np.zeros(shape), f"the gradient of {name} for no steps at all")


@pytest.mark.task("5.1")
def test_squareplus_elsewhere(impl, rng):
    x, b = signed(rng, 5, 3).astype(np.float32), rng.uniform(1, 4, 3).astype(np.float32)
    with register.restored():
        squareplus = register.add_squareplus(impl.squareplus)

        class Twice(flow.nn.Graph):
            def build(self, x, b):
                return 2 * squareplus(x, b)

        on_cuda = squareplus(flow.tensor(x, device="cuda"), flow.tensor(b, device="cuda"))
        in_graph = Twice()(flow.tensor(x), flow.tensor(b))
        transposed = squareplus(flow.tensor(x.T.copy()).T, flow.tensor(b))
    close(on_cuda, on_paper(x, b), "float32", "squareplus on a CUDA device")
    close(in_graph, 2 * on_paper(x, b), "float32", "2 * squareplus in a graph")
    close(transposed, on_paper(x, b), "float32", "squareplus of a transposed tensor")
