"""`flow.special` and functions of matrices beside PyTorch's."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")

X, Y = np.random.default_rng(0).uniform(0.05, 0.95, (2, 3, 4))
ARGUMENTS = {
    "logsumexp": (X, 1), "softmax": (X, 0), "log_softmax": (X, 1), "xlogy": (X, Y), "xlog1py": (X, Y), "entr": (X,),
    "polygamma": (2, X), "multigammaln": (X + 1.0, 3), "zeta": (3, X),
}  # fmt: skip
EDGES = {
    "zeta": (np.array([[1.5], [4.0], [9.0]]), np.array([0.3, 2.0, 40.0, -0.7, -6.2, -3.0, np.nan])),
    "digamma": (np.array([0.0, -0.0, -1.0, -2.6, 1e-9, -1e-9, 1e9, np.inf, -np.inf, np.nan]),),
    "gammaln": (np.array([0.0, -0.0, -1.0, -2.6, 1e-9, -1e-9, 1e9, np.inf, -np.inf, np.nan]),),
    "entr": (np.array([0.0, -1.0, np.inf, np.nan]),),
    "xlog1py": (np.array([0.0, 0.0, 1.0]), np.array([-2.0, np.nan, -1.0])),
    "ndtr": (np.array([-np.inf, -9.0, 0.0, 9.0, np.inf]),),
    "ndtri": (np.array([0.0, 1.0, 0.5]),),
}


@pytest.mark.parametrize("name", flow.special.__all__)
def test_special(name):
    results = []
    for framework in (flow, torch):
        given = [
            framework.tensor(x, requires_grad=True) if isinstance(x, np.ndarray) else x
            for x in ARGUMENTS.get(name, (X,))
        ]
        y = getattr(framework.special, name)(*given)
        (y * framework.tensor(Y)).sum().backward() if y.shape == Y.shape else y.sum().backward()
        results.append([y.detach(), *[x.grad for x in given if hasattr(x, "grad")]])
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", EDGES)
def test_edges(name):
    ours, theirs = (
        getattr(framework.special, name)(*map(framework.tensor, EDGES[name])) for framework in (flow, torch)
    )
    assert_close(ours, theirs)


def test_slopes_of_entr():
    results = []
    for framework in (flow, torch):
        x = framework.tensor([np.inf, 0.0, 1.0, 0.3, -1.0, np.nan], requires_grad=True)
        results.append(framework.autograd.grad(framework.special.entr(x).sum(), x)[0])
    assert_close(*results)


def test_gradients_of_xlog1py_at_zero():
    results = []
    for framework in (flow, torch):
        x, y = (framework.tensor(v, requires_grad=True) for v in ([0.0, 0.0, 0.0], [1.0, -1.0, -2.0]))
        results.append(framework.autograd.grad(framework.special.xlog1py(x, y).sum(), x)[0])
    assert_close(*results)


def test_chain_matmul():
    parts = [np.random.default_rng(k).normal(size=shape) for k, shape in enumerate([(3, 5), (5, 2), (2, 4)])]
    assert_close(flow.chain_matmul(*map(flow.tensor, parts)), torch.linalg.multi_dot([*map(torch.tensor, parts)]))


@pytest.mark.parametrize("name", ["addmm_", "addmv_", "addr_", "baddbmm_", "addbmm_", "tril_", "triu_"])
def test_in_place(name):
    draw = np.random.default_rng(0)
    shapes = {
        "addmm_": [(3, 4), (3, 2), (2, 4)], "addmv_": [(3,), (3, 2), (2,)], "addr_": [(3, 4), (3,), (4,)],
        "baddbmm_": [(2, 3, 4), (2, 3, 5), (2, 5, 4)], "addbmm_": [(3, 4), (2, 3, 5), (2, 5, 4)],
    }.get(name, [(3, 4)])  # fmt: skip
    arrays = [draw.normal(size=shape) for shape in shapes]
    ours, theirs = ([framework.tensor(x) for x in arrays] for framework in (flow, torch))
    assert getattr(ours[0], name)(*ours[1:]) is ours[0]
    getattr(theirs[0], name)(*theirs[1:])
    assert_close(ours[0], theirs[0])


@pytest.mark.parametrize("arguments", [((2, 3), (4, 2), 1), ((4, 3), (1, 1)), ((2, 0), (1, 1), 5), ((), (), 2)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_as_strided(arguments, is_transposed):
    draw, grads = np.random.default_rng(0), []
    start = draw.normal(size=(3, 4))
    cotangent = draw.normal(size=arguments[0])
    for framework in (flow, torch):
        x = framework.tensor(start, requires_grad=True)
        y = framework.as_strided(x.t() if is_transposed else x, *arguments)
        (y * framework.tensor(cotangent)).sum().backward()
        grads += [y.detach(), x.grad]
    assert_close(grads[0], grads[2])
    assert_close(grads[1], grads[3])
