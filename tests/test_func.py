"""`flow.func` and `flow.autograd.functional` beside PyTorch's, and by formulas."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError, DimError, ShapeError

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
    "vmap with an argument by name": lambda lib, x, y, v, w: lib.vmap(lambda a, b=None: a + b)(x, b=v),
    "vmap with one for all": lambda lib, x, y, v, w: lib.vmap(lambda a, n: a * n, in_dims=(0, None))(x, 3.0),
    "vmap with a result for all": lambda lib, x, y, v, w: lib.vmap(lambda a: (a, v), out_dims=(0, None))(x),
    "vmap with a tuple of one dim": lambda lib, x, y, v, w: lib.vmap(lambda a: a * a, in_dims=(1,), out_dims=(1,))(y),
    "grad from the end": lambda lib, x, y, v, w: lib.func.grad(scalar, argnums=-1)(x, y),
    "functional.vjp without v": lambda lib, x, y, v, w: lib.autograd.functional.vjp(scalar, (x, y)),
    "functional.vjp of shape (1, 1)": lambda lib, x, y, v, w: lib.autograd.functional.vjp(
        lambda x: scalar(x, y).reshape(1, 1), x
    ),
    "functional.jvp without v": lambda lib, x, y, v, w: lib.autograd.functional.jvp(cubes, x[:1]),
    "functional.hvp without v": lambda lib, x, y, v, w: lib.autograd.functional.hvp(lambda x: x**3, x[:1]),
    "functional.hessian of shape (1, 1)": lambda lib, x, y, v, w: lib.autograd.functional.hessian(
        lambda x: scalar(x, y).reshape(1, 1), x
    ),
    "functional.vhp of shape (1,)": lambda lib, x, y, v, w: lib.autograd.functional.vhp(
        lambda x: scalar(x, y).reshape(1), x, v
    ),
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


def test_ties_between_names_of_a_parameter():
    class Twice(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = flow.nn.Parameter(flow.ones(2))
            self.b = self.a

        def forward(self, x):
            return x * self.a + self.b

    model, v = Twice(), flow.tensor([1.0, 2.0])
    call = flow.func.functional_call
    assert call(model, {"a": v, "b": v}, v).tolist() == [2.0, 6.0]
    assert call(model, {"a": v, "b": v * 2}, v, tie_weights=False).tolist() == [3.0, 8.0]
    with pytest.raises(ArgumentError, match=r"functional_call: got other tensors under the tied names \['a'\]"):
        call(model, {"a": v, "b": v * 2}, v)
    with pytest.raises(ArgumentError, match=r"unknown names \['c'\], \[\] missing"):
        call(model, {"a": v, "c": v}, v)


VECTOR, ROWS, TWO = flow.tensor([1.0, 2.0]), flow.tensor([[1.0, 2.0], [3.0, 4.0]]), flow.tensor(2.0)
RENAMED = lambda d: {"u": d["a"] * 2, "v": d["b"] * 3}  # noqa: E731
PARTS = {"a": TWO, "b": TWO}
OLDER = flow.autograd.functional
REFUSED = {
    "a number as result": (lambda: flow.vmap(lambda v: float(v.sum()))(ROWS), "vmap: got out_dims 0 for a float"),
    "None in a result": (lambda: flow.vmap(lambda v: (v, None))(ROWS), "vmap: got out_dims 0 for a NoneType"),
    "results that differ": (lambda: flow.vmap(lambda v: v, out_dims=None)(ROWS), "vmap: got results that differ"),
    "numbers that differ": (lambda: flow.vmap(lambda v: v.sum().item(), out_dims=None)(ROWS), "that are not alike"),
    "other keys": (lambda: flow.vmap(lambda v: {"ab"[int(v[0] > 2)]: v})(ROWS), "vmap: got results that are not alike"),
    "keys in another order": (
        lambda: flow.vmap(lambda v: dict(sorted({"a": v, "b": -v}.items(), reverse=bool(v[0] > 2))))(ROWS),
        "vmap: got results that are not alike",
    ),
    "a structure of its own": (lambda: flow.vmap(lambda v: [v] * int(v[0]))(ROWS), "vmap: got results that are not"),
    "out_dims of three": (lambda: flow.vmap(lambda v: (v, v), out_dims=(0, 0, 0))(ROWS), "vmap: got out_dims"),
    "a number to map": (lambda: flow.vmap(lambda v, n: v * n)(ROWS, 3.0), "vmap: got in_dims 0 for a float"),
    "in_dims of no dim": (lambda: flow.vmap(lambda v: v, in_dims=5)(ROWS), "vmap: got in_dims 5 for a tensor of 2"),
    "a tensor of no dims": (lambda: flow.vmap(lambda v: v)(TWO), "vmap: got in_dims 0 for a tensor of 0 dims"),
    "out_dims of no dim": (lambda: flow.vmap(lambda v: v, out_dims=5)(ROWS), "vmap: got dim=5 for a tensor of 2 dims"),
    "jvp of no tuple": (lambda: flow.func.jvp(flow.square, VECTOR, VECTOR), "jvp: got primals of type Tensor"),
    "backward of a number": (lambda: flow.autograd.backward([3.0]), "backward: got an operand of type float"),
    "grad of a number": (lambda: flow.autograd.grad(3.0, VECTOR), "grad: got an operand of type float"),
    "a missing key": (lambda: flow.vmap(lambda d: d["a"], in_dims=({"b": 0},))({"a": ROWS}), "vmap: got in_dims"),
    "in_dims of a str": (lambda: flow.vmap(lambda v: v, in_dims="a")(ROWS), "vmap: got in_dims 'a' for a tuple"),
    "batches by name alone": (lambda: flow.vmap(lambda b: b)(b=ROWS), r"vmap: got batches of sizes \[\]"),
    "a number": (lambda: flow.func.grad(lambda x, n: x * n, argnums=1)(TWO, 3.0), "grad: got an argument .* float"),
    "a number in a dict": (lambda: flow.func.grad(lambda d: d["a"] * d["n"])({"a": TWO, "n": 2}), "grad: .* int"),
    "twice": (lambda: flow.func.grad(flow.square, argnums=(0, 0))(TWO), r"grad: got argnums=\(0, 0\)"),
    "twice, from the end": (lambda: flow.func.jacrev(flow.square, argnums=(0, -1))(TWO), "jacrev: got argnums"),
    "no position": (lambda: flow.func.grad(flow.square, argnums=())(TWO), "grad: got argnums"),
    "a fraction as position": (lambda: flow.func.grad(flow.square, argnums=0.0)(TWO), "grad: got argnums"),
    "its own name": (lambda: flow.func.grad_and_value(flow.square)(VECTOR), "^grad_and_value: got a function"),
    "aux": (lambda: flow.func.grad(flow.square, has_aux=True)(TWO), "grad: got a result of type Tensor for has_aux"),
    "a result that is a number": (lambda: flow.func.vjp(lambda x: (x, 3.0), TWO), "vjp: got a result of type float"),
    "vjp of another order": (
        lambda: flow.func.vjp(RENAMED, PARTS)[1]({"v": TWO, "u": TWO}),
        r"vjp: got tensors of shapes \{'v': \(\), 'u'",
    ),
    "jvp of another order": (
        lambda: flow.func.jvp(RENAMED, (PARTS,), ({"b": TWO, "a": TWO},)),
        r"jvp: got tensors of shapes \(\{'b'",
    ),
    "no v of several": (lambda: OLDER.vjp(flow.square, VECTOR), "vjp: got v=None; expected .* of the results"),
    "no v of two results": (lambda: OLDER.vjp(lambda x: (x.sum(), x.sum()), VECTOR), "vjp: got v=None"),
    "no v of several inputs": (lambda: OLDER.jvp(flow.square, VECTOR), "jvp: got v=None; expected .* of the inputs"),
    "no v of a hessian": (lambda: OLDER.vhp(lambda x: (x**3).sum(), VECTOR), "vhp: got v=None"),
    "no v of a hessian, hvp": (lambda: OLDER.hvp(lambda x: (x**3).sum(), VECTOR), "hvp: got v=None"),
    "v of two": (lambda: OLDER.vjp(flow.square, VECTOR, (VECTOR, VECTOR)), "vjp: got tensors of shapes"),
    "a strategy": (lambda: OLDER.jacobian(flow.square, VECTOR, strategy="foo"), "jacobian: got strategy='foo'"),
    "a hessian of two": (lambda: OLDER.hessian(flow.square, VECTOR), "hessian: got a function with a result of shape"),
    "inputs that are a number": (lambda: OLDER.vjp(flow.square, 3.0), "vjp: got an operand of type float"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, words = REFUSED[name]
    with pytest.raises((ArgumentError, ArgumentTypeError, DimError, ShapeError), match=words):
        call()


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
    x = flow.tensor(X, requires_grad=True)
    for outputs, cotangents in [
        ((x * 2, x * 3), (flow.ones(2, 3), flow.ones(3, 3))), (x * 2, flow.ones(0, 3)), (x * 2, None), (x * 2, 3),
        (x.sum(), flow.tensor(1.0)), ((x.sum(), x), (None, flow.ones(3, 3))),
    ]:  # fmt: skip
        with pytest.raises(ShapeError, match="grad: got grad_outputs .* for is_grads_batched"):
            flow.autograd.grad(outputs, x, cotangents, is_grads_batched=True)


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


def test_vmap_in_a_graph_notices_random_numbers():
    class Drawing(flow.nn.Module):
        def __init__(self, draws, randomness):
            super().__init__()
            self.draws, self.randomness = draws, randomness

        def forward(self, x):
            function = (lambda row: row * flow.rand(2)) if self.draws else (lambda row: row * 2)
            return flow.func.vmap(function, randomness=self.randomness)(x)

    rows = flow.ones(3, 2)
    assert flow.nn.Graph.trace(Drawing(False, "error"))(rows).tolist() == [[2.0, 2.0]] * 3
    found = flow.nn.Graph.trace(Drawing(True, "different"))(rows)
    assert len({tuple(row) for row in found.tolist()}) == 3
    with pytest.raises(ArgumentError, match="vmap: got a function that draws random numbers"):
        flow.nn.Graph.trace(Drawing(True, "error"))(rows)
