"""Functions composed of others beside PyTorch's: values, dtypes, gradients, in-place forms, edges and refusals."""

import numpy as np
import pytest
from checks import as_array, assert_close, check_against_torch

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")

DRAW = np.random.default_rng(0)
A, B, SQUARE = DRAW.normal(size=(2, 5, 3)), DRAW.normal(size=(2, 5, 4)), DRAW.normal(size=(2, 4, 4))
WEAK = A @ np.diag([1.0, 1.0, 0.0])  # of rank 2
INDEX = np.array([2, 0, 2, 1])
X, SOURCE = DRAW.normal(size=(3, 4)), DRAW.normal(size=(4, 4))

CASES = {
    "clamp_min": lambda lib, x: lib.clamp_min(x, 0.1),
    "clamp_max": lambda lib, x: x.clamp_max(0.1),
    "sgn": lambda lib, x: lib.sgn(x) + x.sgn() * x,
    "rsub": lambda lib, x: lib.rsub(x, 2.0, alpha=3),
    "positive": lambda lib, x: lib.positive(x) + x.positive(),
    "dist": lambda lib, x: lib.dist(x, x.flip(0) * 2, 3) + x.dist(x[:1] + 1),
    "renorm": lambda lib, x: lib.renorm(x, 2, 0, 1.5) + x.renorm(1, -1, 2.0) + x.renorm(3, 1, 0.0),
    "split_with_sizes": lambda lib, x: (
        lib.split_with_sizes(x, [1, 3], 1)[1] * x.split_with_sizes([1, 2])[1][:, :1].sum()
    ),
    "cond": lambda lib, x: lib.linalg.cond(x @ x.mT),
    "cond of a wide matrix": lambda lib, x: lib.linalg.cond(x, -2),
    "pinv": lambda lib, x: lib.linalg.pinv(x),
    "mvlgamma": lambda lib, x: lib.mvlgamma(x.abs() + 2, 4) + x.detach().exp().polygamma(0),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_torch(name):
    check_against_torch(lambda x: CASES[name](flow, x), lambda x: CASES[name](torch, x), [X], dtype="float64")


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_index_reduce(reduce, include_self):
    for dim, index, source in ((0, INDEX, SOURCE), (-1, INDEX, SOURCE[:3]), (0, INDEX[:0], SOURCE[:0])):

        def function(x, s, lib=None, dim=dim, index=index):
            return x.index_reduce(dim, lib.tensor(index), s, reduce, include_self=include_self)

        check_against_torch(lambda x, s: function(x, s, flow), lambda x, s: function(x, s, torch), [X, source],
                            dtype="float64")  # fmt: skip
    numbers = np.arange(3) * 7
    results = [
        lib.tensor(numbers).index_reduce_(
            0, lib.tensor(INDEX), lib.tensor([5, 3, 2, 8]), reduce, include_self=include_self
        )
        for lib in (flow, torch)
    ]  # fmt: skip
    assert as_array(results[0]).tolist() == results[1].tolist() and results[0].dtype is flow.int64


def test_in_place_forms():
    for change in (
        lambda x: x.clamp_min_(0.2), lambda x: x.clamp_max_(0.2), lambda x: x.sgn_(), lambda x: x.renorm_(2, 0, 1.0),
        lambda x: x.lgamma_(), lambda x: x.digamma_(),
    ):  # fmt: skip
        ours, theirs = flow.tensor(X), torch.tensor(X)
        assert change(ours) is ours
        assert_close(ours, change(theirs), rtol=1e-9)


@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_places_in_a_triangle(name):
    for arguments in ((3, 4), (4, 2, 1), (2, 5, -1), (0, 3), (3, 0), (2, 2, 9), (2, 2, -(2**62)), (3, 3, 2**62)):
        ours, theirs = (getattr(lib, name)(*arguments) for lib in (flow, torch))
        assert ours.dtype is flow.int64 and ours.shape == tuple(theirs.shape)
        assert ours.tolist() == theirs.tolist()
    assert getattr(flow, name)(2, 2, dtype=flow.int32).dtype is flow.int32


def test_scalar_tensor():
    for s in (1, True, 2.5):
        ours, theirs = flow.scalar_tensor(s), torch.scalar_tensor(s)
        assert (ours.item(), ours.shape, ours.dtype) == (theirs.item(), (), flow.float32)
    assert flow.scalar_tensor(3, dtype=flow.int64).dtype is flow.int64


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"])
def test_condition_numbers(p):
    singular = np.stack([SQUARE[0], np.ones((4, 4))])

    def reference(x):  # torch's own raises in backward for most p
        norm = torch.linalg.matrix_norm
        return torch.linalg.cond(x, p) if p in (None, 2, -2) else norm(x, p) * norm(torch.linalg.inv(x), p)

    check_against_torch(lambda x: flow.linalg.cond(x, p), reference, [SQUARE], dtype="float64")
    if p not in (None, 2, -2):
        assert_close(
            flow.linalg.cond(flow.tensor(singular), p), torch.linalg.cond(torch.tensor(singular), p), rtol=1e-9
        )


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shapes", ["tall", "wide", "vectors", "weak"])
def test_least_squares(driver, shapes):
    a, b = {"tall": (A, B), "wide": (A.swapaxes(1, 2), B[:, :3]), "vectors": (A, B[..., 0]), "weak": (WEAK, B)}[shapes]
    driver = "gelsd" if shapes == "weak" and driver == "gels" else driver  # gels supposes full rank
    ours, theirs = (lib.linalg.lstsq(lib.tensor(a), lib.tensor(b), driver=driver) for lib in (flow, torch))
    for name in ("solution", "residuals", "rank", "singular_values"):
        assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=1e-10)
    if shapes != "weak":  # torch's gradient there is by the inverse of a singular matrix
        check_against_torch(
            lambda a, b: flow.linalg.lstsq(a, b).solution, lambda a, b: torch.linalg.lstsq(a, b).solution, [a, b],
            dtype="float64", rtol=1e-7, atol=1e-9,
        )  # fmt: skip


def test_the_gradient_of_pinv_where_singular_values_are_equal():
    for x in (np.eye(3), np.eye(4, 3), WEAK[0]):
        ours, theirs = flow.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        weights = DRAW.normal(size=x.T.shape)
        (flow.linalg.pinv(ours) * flow.tensor(weights)).sum().backward()
        (torch.linalg.pinv(theirs) * torch.tensor(weights)).sum().backward()
        assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("options", [{"upper": u, "left": s, "unitriangular": o} for u in (0, 1) for s in (0, 1)
                                     for o in (0, 1)], ids=str)  # fmt: skip
def test_triangular_systems(options):
    options = {name: bool(value) for name, value in options.items()}
    right = DRAW.normal(size=(4, 3) if options["left"] else (3, 4))
    check_against_torch(
        lambda a, b: flow.linalg.solve_triangular(a, b, **options),
        lambda a, b: torch.linalg.solve_triangular(a, b, **options), [SQUARE, right], dtype="float64",
    )  # fmt: skip


REFUSALS = {
    "positive: got bool": lambda lib: lib.positive(lib.tensor([True])),
    "renorm: got \\(3,\\)": lambda lib: lib.renorm(lib.ones(3), 2, 0, 1.0),
    "renorm: got p=0": lambda lib: lib.renorm(lib.ones(3, 3), 0, 0, 1.0),
    "index_reduce: got reduce='sum'": lambda lib: lib.ones(3).index_reduce(0, lib.tensor([0]), lib.ones(1), "sum"),
    "index_reduce: got an index": lambda lib: lib.ones(3).index_reduce(0, lib.tensor([0]), lib.ones(2), "prod"),
    "lstsq: got driver": lambda lib: lib.linalg.lstsq(lib.ones(3, 2), lib.ones(3, 1), driver="x"),
    "lstsq: got A": lambda lib: lib.linalg.lstsq(lib.ones(3, 2), lib.ones(2, 1)),
    "solve_triangular: got B": lambda lib: lib.linalg.solve_triangular(lib.ones(2, 2), lib.ones(2), upper=True),
    "tril_indices: got": lambda lib: lib.tril_indices(-1, 2),
    "polygamma: got n": lambda lib: lib.polygamma(-1, lib.ones(1)),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message):
    with pytest.raises(RuntimeError):
        REFUSALS[message](torch)
    with pytest.raises((ValueError, TypeError), match=message):
        REFUSALS[message](flow)
