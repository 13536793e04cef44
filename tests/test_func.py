"""`flow.func` and `flow.autograd.functional` beside PyTorch's, and by formulas."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError, ShapeError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")

DRAW = np.random.default_rng(0)
X, Y, V, W = (DRAW.normal(size=shape) for shape in ((3,), (2, 3), (3,), (2, 3)))


def scalar(x, y):
    return ((y * x.exp()).sin() * x).sum()


def two(x, y):
    return {"a": (y @ x).tanh(), "b": x.prod() * y}


def cubes(x):
    return x**3 + x.sum() * x


def both(compute):
    """The same of each framework, compared leaf by leaf."""
    results = []
    for lib in (flow, torch):
        tree = compute(lib, *[lib.tensor(a) for a in (X, Y, V, W)])
        results.append(leaves(tree))
    assert len(results[0]) == len(results[1]) > 0
    for ours, theirs in zip(*results, strict=True):
        assert not ours.requires_grad
        assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def leaves(tree):
    if isinstance(tree, dict):
        return [x for key in sorted(tree) for x in leaves(tree[key])]
    return [x for part in tree for x in leaves(part)] if isinstance(tree, list | tuple) else [tree]


CASES = {
    "grad": lambda lib, x, y, v, w: lib.func.grad(scalar)(x, y),
    "grad of the second": lambda lib, x, y, v, w: lib.func.grad(scalar, argnums=1)(x, y),
    "grad of both": lambda lib, x, y, v, w: lib.func.grad(scalar, argnums=(0, 1))(x, y),
    "grad with aux": lambda lib, x, y, v, w: lib.func.grad(lambda x: (scalar(x, y), x * 2), has_aux=True)(x),
    "grad of a dict": lambda lib, x, y, v, w: lib.func.grad(lambda p: scalar(p["x"], p["y"][0]))({"x": x, "y": [y]}),
    "grad_and_value": lambda lib, x, y, v, w: lib.func.grad_and_value(scalar)(x, y),
    "grad of grad": lambda lib, x, y, v, w: lib.func.grad(lambda x: (lib.func.grad(scalar)(x, y) * v).sum())(x),
    "grad within": lambda lib, x, y, v, w: lib.func.grad(lambda x: lib.func.grad(scalar, 1)(x * 2, y).sum())(x),
    "vjp": lambda lib, x, y, v, w: lib.func.vjp(cubes, x)[1](v),
    "vjp of a dict": lambda lib, x, y, v, w: lib.func.vjp(two, x, y)[1]({"a": v[:2], "b": w}),
    "jvp": lambda lib, x, y, v, w: lib.func.jvp(two, (x, y), (v, w)),
    "jvp of grad": lambda lib, x, y, v, w: lib.func.jvp(lib.func.grad(scalar), (x, y), (v, w)),
    "jacrev": lambda lib, x, y, v, w: lib.func.jacrev(two, (0, 1))(x, y),
    "jacfwd": lambda lib, x, y, v, w: lib.func.jacfwd(two, (0, 1))(x, y),
    "jacobian of the jacobian": lambda lib, x, y, v, w: lib.func.jacrev(lib.func.jacrev(cubes))(x),
    "hessian": lambda lib, x, y, v, w: lib.func.hessian(scalar, (0, 1))(x, y),
    "hessian of several": lambda lib, x, y, v, w: lib.func.hessian(cubes)(x),
    "jacrev of unused": lambda lib, x, y, v, w: lib.func.jacrev(lambda x, y: x * 2, 1)(x, y),
    "vmap": lambda lib, x, y, v, w: lib.func.vmap(lib.dot, in_dims=(0, None))(y, x),
    "vmap of another dim": lambda lib, x, y, v, w: lib.func.vmap(lambda a, b: (a * b, a), (1, 0), (1, 0))(y, x),
    "vmap of a dict": lambda lib, x, y, v, w: lib.vmap(lambda p: p["x"] * p["y"].sum(), ({"x": None, "y": 0},))(
        {"x": x, "y": y}
    ),
    "vmap of grad": lambda lib, x, y, v, w: lib.func.vmap(lib.func.grad(scalar), in_dims=(0, 0))(y, w),
    "functional.jacobian": lambda lib, x, y, v, w: lib.autograd.functional.jacobian(cubes, x),
    "functional.jacobian of two": lambda lib, x, y, v, w: lib.autograd.functional.jacobian(
        lambda x, y: (y @ x, x * 2), (x, y)
    ),
    "functional.hessian": lambda lib, x, y, v, w: lib.autograd.functional.hessian(scalar, (x, y)),
    "functional.vjp": lambda lib, x, y, v, w: lib.autograd.functional.vjp(cubes, x, v),
    "functional.jvp": lambda lib, x, y, v, w: lib.autograd.functional.jvp(scalar, (x, y), (v, w)),
    "functional.hvp": lambda lib, x, y, v, w: lib.autograd.functional.hvp(scalar, (x, y), (v, w)),
    "functional.vhp": lambda lib, x, y, v, w: lib.autograd.functional.vhp(scalar, (x, y), (v, w)),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_torch(name):
    both(CASES[name])


@pytest.mark.parametrize("create_graph", [False, True])
def test_results_depend_on_what_else_requires_grad(create_graph):
    """By the function's own tensors, and by arguments that require grad."""

    def jacobian(lib, f):
        return lambda x: lib.autograd.functional.jacobian(f, x, create_graph=create_graph)

    for transform in (lambda lib, f: lib.func.grad(f), jacobian):
        found = []
        for lib in (flow, torch):
            w, x = lib.tensor(Y, requires_grad=True), lib.tensor(X, requires_grad=True)
            y = transform(lib, lambda x, w=w: scalar(x, w))(x)
            found.append(y.requires_grad)
            if y.requires_grad:
                y.sum().backward()
                found += [w.grad, x.grad]
        half = len(found) // 2
        assert found[0] == found[half]
        for ours, theirs in zip(found[1:half], found[half + 1 :], strict=True):
            assert_close(ours, theirs, rtol=1e-9)


def test_functional_call_and_stacked_modules():
    class Model(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = flow.nn.Linear(3, 3), flow.nn.BatchNorm1d(3)
            self.second = flow.nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.norm(self.first(x)))

    models = [Model().eval().double() for _ in range(3)]
    x = flow.tensor(Y)
    params, buffers = flow.func.stack_module_state(models)
    assert all(p.requires_grad and p.is_leaf for p in params.values())
    got = flow.func.vmap(lambda p, b: flow.func.functional_call(models[0], (p, b), (x,)))(params, buffers)
    assert_close(got, np.stack([m(x).detach().numpy() for m in models]))
    before = models[0].first.weight
    doubled = flow.func.functional_call(models[0], {"first.weight": before * 2}, x)
    assert models[0].first.weight is before and models[0].second.weight is before
    models[0].first.weight.data.mul_(2)
    assert_close(doubled, models[0](x))
    with pytest.raises(ArgumentError, match=r"functional_call: got unknown names \['third.weight'\]"):
        flow.func.functional_call(models[0], {"third.weight": before}, x)
    with pytest.raises(ArgumentError, match="stack_module_state: got 2 models"):
        flow.func.stack_module_state([models[0], flow.nn.Linear(2, 2)])


def test_vmap_and_random_numbers():
    noisy = lambda x: x + flow.rand(2)  # noqa: E731
    x = flow.zeros(3, 2)
    with pytest.raises(ArgumentError, match="draws random numbers"):
        flow.vmap(noisy)(x)
    same, different = (flow.vmap(noisy, randomness=mode)(x) for mode in ("same", "different"))
    assert (same == same[0]).all() and (different[0] != different[1]).all()


def test_refusals():
    x = flow.ones(3)
    with pytest.raises(ShapeError, match=r"grad: got a function with results of shapes \[\(3,\)\]"):
        flow.func.grad(cubes)(x)
    with pytest.raises(ArgumentError, match="grad: got argnums=1 for 1 arguments"):
        flow.func.grad(cubes, argnums=1)(x)
    with pytest.raises(ShapeError, match=r"vmap: got batches of sizes \[2, 3\]"):
        flow.vmap(flow.dot)(x, flow.ones(2))
    with pytest.raises(ShapeError, match=r"jvp: got tensors of shapes \[\(2,\)\]; expected \[\(3,\)\]"):
        flow.func.jvp(cubes, (x,), (flow.ones(2),))


def test_batched_cotangents():
    results = []
    for lib in (flow, torch):
        x, y = lib.tensor(X, requires_grad=True), lib.tensor(Y, requires_grad=True)
        z, basis = y @ x, lib.eye(2, dtype=lib.float64)
        results.append(lib.autograd.grad(z, (x, y), basis, is_grads_batched=True))
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs)


def test_backward_into_chosen_tensors():
    results = []
    for lib in (flow, torch):
        x, y = lib.tensor(X, requires_grad=True), lib.tensor(Y, requires_grad=True)
        z = y * x
        z.sin().sum().backward(inputs=[x, z], retain_graph=True)
        z.cos().sum().backward(inputs=x)
        assert y.grad is None
        results.append([x.grad, z.grad])
        w = lib.tensor(X, requires_grad=True)
        lib.autograd.backward([(w * x).sum()], inputs=[w])
        results[-1].append(w.grad)
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs)
    with pytest.raises(AutogradError, match="backward: got no inputs"):
        flow.ones(1, requires_grad=True).sum().backward(inputs=[])
