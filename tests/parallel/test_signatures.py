"""Every stated SBP signature of every operator: what the ranks compute by themselves makes up the result of one device.

The operators and their operands are those that the sample table runs, forward and backward.
"""

import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from compare import assert_close, count_comparison
from samples import ROWS

import miniflow as flow
from miniflow.dispatch import dispatcher
from miniflow.dispatch.dispatcher import Op
from miniflow.parallel import partition, world
from miniflow.parallel.placement import placement
from miniflow.parallel.signature import can_carry
from miniflow.sbp import B, P, show

Case = tuple[type[Op], tuple, dict]


@pytest.fixture(autouse=True)
def four_ranks():
    world.simulate(4)
    yield
    world.simulate(1)


def draw(*shape: int) -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng(sum(shape)).normal(size=shape)


def batch_norm(x: flow.Tensor, weight: flow.Tensor, bias: flow.Tensor, training: bool) -> flow.Tensor:
    return F.batch_norm(x, flow.tensor(draw(4)), flow.tensor(draw(4)).abs(), weight, bias, training)


def write(x: flow.Tensor, key: Any, value: Any) -> flow.Tensor:
    x = x * 1
    x[key] = value
    return x


F = flow.nn.functional
ROWS_AND_COLUMNS, IMAGES = draw(6, 5), draw(4, 4, 6, 6)
FACTORIZATIONS = [
    flow.linalg.inv, flow.linalg.pinv, flow.linalg.cholesky, lambda A: flow.linalg.qr(A)[1],
    lambda A: flow.linalg.solve(A, A * A),
    lambda A: flow.linalg.svdvals(A)[:, :, None], lambda A: flow.linalg.eigvalsh(A)[:, :, None],
    lambda A: (flow.det(A) + flow.slogdet(A)[1])[:, None, None],
]  # fmt: skip


def factorized(A: flow.Tensor) -> flow.Tensor:
    A = A @ A.mT + flow.eye(3, dtype=A.dtype)
    return functools.reduce(operator.add, [f(A) for f in FACTORIZATIONS])


OTHERS = {  # of operators that the sample table has not: a function, and its operands
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), [IMAGES]),
    "batch_norm": (lambda x, w, b: batch_norm(x, w, b, True), [IMAGES, draw(4), draw(4)]),
    "batch_norm, inference": (lambda x, w, b: batch_norm(x, w, b, False), [IMAGES, draw(4), draw(4)]),
    "bernoulli": (lambda x: flow.bernoulli(x.abs().clamp(0, 1)), [ROWS_AND_COLUMNS]),
    "shifts": (lambda x, y: flow.bitwise_left_shift(x, y) + flow.bitwise_right_shift(x, y),
               [np.arange(30).reshape(6, 5), np.arange(5)]),
    "linalg": (factorized, [draw(4, 3, 3)]),
    "cat": (lambda x, y: flow.cat([x, y], 1), [ROWS_AND_COLUMNS, draw(6, 3)]),
    "stack": (lambda x, y: flow.stack([x, y], 1), [ROWS_AND_COLUMNS, draw(6, 5)]),
    "clamp": (lambda x, y, z: flow.clamp(x, y, z), [ROWS_AND_COLUMNS, draw(6, 5) - 1, draw(6, 5) + 1]),
    "diagonal": (lambda x: flow.diagonal(x, 1, 0, 2), [draw(4, 6, 5)]),
    "dropout": (lambda x: F.dropout(x, 0.3), [ROWS_AND_COLUMNS]),
    "dropout, gradient": (lambda x: flow.autograd.grad(F.dropout(x * x, 0.3).sum(), x, create_graph=True)[0],
                          [ROWS_AND_COLUMNS]),
    "unfold": (lambda x: x.unfold(1, 3, 2), [draw(4, 7, 5)]),
    "unfold, one window": (lambda x: x.unfold(1, 7, 2), [draw(4, 7, 5)]),
    "gather, a number": (lambda x: x.gather(0, flow.zeros_like(x, dtype=flow.int64)), [draw()]),
    "scatter_add, a number": (lambda x: x.scatter_add(0, flow.zeros_like(x, dtype=flow.int64), x), [draw()]),
    "random": (lambda x: flow.rand_like(x) + flow.randn_like(x) + flow.randint_like(x, 9), [ROWS_AND_COLUMNS]),
    "randperm": (lambda x: flow.randperm(6), [ROWS_AND_COLUMNS]),
    "multinomial": (lambda x: flow.multinomial(x.abs(), 2), [ROWS_AND_COLUMNS]),
    "one_hot": (lambda x: flow.one_hot(x, 9), [np.arange(8).reshape(4, 2)]),
    "pad": (lambda x: F.pad(x, (1, 2)), [ROWS_AND_COLUMNS]),
    "reflected": (lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), [IMAGES]),
    "slice": (lambda x: x[:, 1:4], [ROWS_AND_COLUMNS]),
    "places": (lambda x: x[flow.tensor([0, 3, 3])], [ROWS_AND_COLUMNS]),
    "write": (lambda x, y: write(x, (slice(None), slice(1, 4)), y), [ROWS_AND_COLUMNS, draw(6, 3)]),
    "write to places": (lambda x, y: write(x, flow.tensor([4, 1]), y), [ROWS_AND_COLUMNS, draw(2, 5)]),
    "int": (lambda x: x.int(), [ROWS_AND_COLUMNS]),
    "truncated division": (lambda x, y: flow.div(x, y, rounding_mode="trunc"),
                           [np.arange(30).reshape(6, 5), np.arange(1, 6)]),
}  # fmt: skip


class Other(NamedTuple):
    """A row of `OTHERS`."""

    name: str

    def __str__(self) -> str:
        return self.name

    def run(self) -> None:
        function, arrays = OTHERS[self.name]
        backward(function(*leaves(arrays)))


def leaves(args: Any) -> list:
    """Tensors of the arrays; those of floats require grad."""
    tensors = [flow.tensor(x) if isinstance(x, np.ndarray) else x for x in args]
    return [x.requires_grad_() if isinstance(x, flow.Tensor) and x.is_floating_point() else x for x in tensors]


def backward(y: Any) -> None:
    """The gradients of a result, for a random cotangent."""
    y = y[0] if isinstance(y, tuple) else y
    if y.requires_grad:
        y.backward(flow.tensor(np.random.default_rng(1).normal(size=y.shape), dtype=y.dtype))


def run(row: Any) -> None:
    """The samples of a row, forward and backward."""
    if isinstance(row, Other):
        row.run()
        return
    for sample in [s for s in row.samples() if not s.brief][:3]:
        backward(sample.bound_to(row.function)(*leaves(sample.args)))


EVERY = [*ROWS, *map(Other, OTHERS)]


def calls_of(row: Any, monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The operators that a row runs in float64, with arrays and attributes; each geometry once."""
    found: dict[str, Case] = {}
    find = dispatcher.find_kernel

    def watch(op, arrays):
        kernel = find(op, arrays)
        op.kernels.clear()  # to be asked again

        def run(*arrays, **attrs):
            kinds = [(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in arrays]
            found[f"{op.__name__} {kinds} {attrs}"] = op, arrays, attrs
            result = kernel(*arrays, **attrs)
            return result if op.single else tuple(result)

        return run

    for op in Op.by_name.values():
        monkeypatch.setattr(op, "kernels", {})
    monkeypatch.setattr(dispatcher, "find_kernel", watch)
    run(row)
    monkeypatch.undo()
    return list(found.values())


def parts(x: np.ndarray, sbp: Any, where: placement, random: np.random.Generator) -> dict[int, np.ndarray]:
    """The shards of an array; a partial sum has random terms. The sum of truths is NumPy's: whether any is true."""
    if sbp is P and x.dtype == np.bool_:
        return {r: x & (random.random(x.shape) < 0.5) if r != where.flat[-1] else x for r in where.flat}
    if sbp is P:
        terms = [np.asarray(random.normal(size=x.shape)).astype(x.dtype) for _ in where.flat[1:]]
        return dict(zip(where.flat, [np.asarray(x - sum(terms)), *terms], strict=True))
    regions = {r: partition.region(x.shape, where, (sbp,), r) for r in where.flat}
    return {r: np.array(x[tuple(slice(*b) for b in region)]) for r, region in regions.items()}


def assembled(shards: dict[int, np.ndarray], sbp: Any, shape: tuple, dtype: np.dtype, where: placement) -> np.ndarray:
    """The array that shards make up, whose shapes are checked. A word is the operation that has to follow."""
    for r, x in shards.items():
        assert x.shape == partition.local_shape(shape, where, (broadcast(sbp),), r) and x.dtype == dtype
    values = [shards[r] for r in where.flat]
    if isinstance(sbp, str):
        return functools.reduce(getattr(np, {"mul": "multiply"}.get(sbp, sbp)), values)
    return functools.reduce(np.add, values) if sbp is P else values[0] if sbp is B else np.concatenate(values, sbp.dim)


def broadcast(sbp: Any) -> Any:
    """The layout of a result, once an all-reduce has followed."""
    return B if isinstance(sbp, str) else sbp


def check(case: Case, where: placement) -> Iterator[str]:
    """Compute by each signature; yield its text."""
    op, arrays, attrs = case
    random = np.random.default_rng(0)
    want = dispatcher.run_kernel(op, arrays, attrs)
    want = [want] if op.single else want
    for given, results in op.sbp(*arrays, ranks=len(where.flat), **attrs):
        layouts = [*zip(arrays, given, strict=True), *zip(want, map(broadcast, results), strict=True)]
        if not op.view and not all(can_carry(np.shape(x), (s,), where.shape) for x, s in layouts):
            continue  # it is not used then
        shards = [
            parts(x, s, where, random) if isinstance(x, np.ndarray) else x for x, s in zip(arrays, given, strict=True)
        ]
        computed = [{} for _ in want]
        for rank in where.flat:
            bounds = partition.region(want[0].shape, where, (broadcast(results[0]),), rank)
            local = [x[rank] if isinstance(x, dict) else x for x in shards]
            own = attrs | {"shape": partition.shape_of(bounds)} if "shape" in attrs else attrs
            held = [
                partition.region(x.shape, where, (s,), rank) if isinstance(x, np.ndarray) else None
                for x, s in zip(arrays, given, strict=True)
            ]
            got = op.on_shard(op, local, own, dispatcher.Shard(bounds, want[0].shape, tuple(held), arrays))
            for one, array in zip(computed, [got] if op.single else got, strict=True):
                one[rank] = array
        for one, sbp, expected in zip(computed, results, want, strict=True):
            what = f"{op.__name__} {attrs}: {show(given)} -> {results}"
            got = assembled(one, sbp, expected.shape, expected.dtype, where)
            assert_close(got, expected, rtol=1e-6, atol=1e-7, what=what)
        yield what


@pytest.mark.parametrize("row", EVERY, ids=str)
def test_every_signature_of_what_the_samples_run(row, monkeypatch):
    for op, arrays, attrs in calls_of(row, monkeypatch):
        if op.sbp is not None and not op.shape_depends_on_values:
            for ranks in (2, 3, 4):
                for _ in check((op, arrays, attrs), placement("cpu", range(ranks))):
                    pass
    count_comparison()


NOT_RUN = {  # classes that others are made of, and what only scalers, optimizers and writes through views run
    "Extremum", "ExtremumAlong", "Factorization", "IntoZeros", "MeanPool", "Pointwise", "Position", "Reduction",
    "RowOp", "RowOpGrad", "Scan", "StridedView", "DropoutGradGradDy", "AmpBlackIdentity", "AnyNonFinite",
    "ScaleLoss", "TotalNorm", "UnscaleGradient", "ViewScatter",
}  # fmt: skip


def test_every_operator_with_a_rule_was_run(monkeypatch):
    seen = {case[0].__name__ for row in EVERY for case in calls_of(row, monkeypatch)}
    stated = {
        n
        for n, op in Op.by_name.items()
        if op.sbp is not None and not (op.shape_depends_on_values or op.made_by_passes)
    }
    assert stated - seen - NOT_RUN == set()
