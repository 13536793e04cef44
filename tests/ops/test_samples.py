"""Every row of the sample table on the CPU: values, dtypes, gradients of all orders, layouts, special values."""

from collections.abc import Sequence

import numpy as np
import pytest
from checks import as_array, as_tuple, assert_close, assert_same, check_op
from compare import add_note
from samples import POINTWISE, ROWS, SPECIAL, Row, Sample

import miniflow as flow
from miniflow.backends.cpu.threads import SHARED_FROM
from miniflow.errors import ShapeError

every_row = pytest.mark.parametrize("row", ROWS, ids=str)


def rows(wanted) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [row for row in ROWS if wanted(row)], ids=str)


HALVES = ("float16", "bfloat16")


def on_cuda() -> bool:
    return flow.get_default_device().type == "cuda"


@every_row
def test_rules(row):
    """Pointwise operators are compiled for each dtype: of them, one in eight is checked in half precision."""
    for number, sample in enumerate(row.samples()):
        if row not in POINTWISE:
            check(row, sample, row.dtypes)
        elif row.name in BROADCAST_WHOLLY or not broadcasts(sample):
            octave, place = divmod(POINTWISE.index(row), 8)
            halves = [HALVES[octave % 2]] if number == place == 0 else []
            check(row, sample, [name for name in row.dtypes if name not in HALVES or name in halves])


BROADCAST_WHOLLY = ("add", "maximum", "mul", "pow", "where", "lt", "bitwise_and", "clamp")


def broadcasts(sample: Sample) -> bool:
    """Whether it is a brief one, of operands that are broadcast: the first sample broadcasts, too."""
    shapes = {x.shape for x in sample.args if isinstance(x, np.ndarray)}
    return sample.brief and len(shapes) > 1 and not is_empty(sample)


def is_empty(sample: Sample) -> bool:
    """Whether an operand has no elements: then nothing is compiled."""
    return any(x.size == 0 for x in sample.args if isinstance(x, np.ndarray))


@pytest.mark.slow
@rows(lambda row: row in POINTWISE and row.name not in BROADCAST_WHOLLY and any(map(broadcasts, row.samples())))
def test_rules_of_operands_that_are_broadcast(row):
    for sample in filter(broadcasts, row.samples()):
        check(row, sample, row.dtypes)


@pytest.mark.slow
@rows(lambda row: row in POINTWISE and set(HALVES) <= set(row.dtypes))
@pytest.mark.cpu_only("a cuda device rounds the results of all of them by the same code")
def test_rules_in_half_precision(row):
    for sample in row.samples():
        check(row, sample, HALVES)


@pytest.mark.slow
@rows(lambda row: row.name in ("add", "gelu", "maximum", "pow", "where"))
@pytest.mark.parametrize("half", HALVES)
def test_both_half_precisions_on_each_device(row, half):
    check(row, row.samples()[0], [half])


def check(row: Row, sample: Sample, dtypes: Sequence[str]) -> None:
    """All rules for the sample; for a brief one values and first-order gradients, in one dtype if it has elements."""
    dtypes_of_brief = row.dtypes if row in POINTWISE and is_empty(sample) else dtypes[:1]
    brief = {"dtypes": dtypes_of_brief, "second": False, "layouts": ()}
    second = row.second and not (on_cuda() and row in POINTWISE)  # there test_expressions.py runs every gradient's loop
    rules = brief if sample.brief else {"dtypes": dtypes, "second": second, "third": row.third}
    try:
        check_sample(row, sample, rules)
    except Exception as error:
        add_note(error, f"sample {row}{sample}")
        raise


def check_sample(row: Row, sample: Sample, rules: dict) -> None:
    check_op(
        sample.bound_to(row.function),
        sample.args,
        sample.bound_to(row.reference),
        grad=row.gradient is not None and (row.grad is None or row.grad),
        gradient="any" if sample.brief and row.gradient != "zero" else row.gradient,
        result=row.result,
        graph=row.graph,
        rtol=row.rtol,
        atol=row.atol,
        **rules,
    )


@rows(lambda row: row.integers)
def test_integers(row):
    """Values, modulo 2^n where integers stay integers, and the dtype of the result."""
    sample = row.samples()[0]
    for kind in row.integers[-2:] if on_cuda() else row.integers:  # each is compiled
        args = sample.of_integers(kind)
        with np.errstate(all="ignore"):
            want = sample.bound_to(row.reference)(*[x if kind == "bool" else x.astype(np.int64) for x in args])
            if want.dtype.kind == "f":
                want = sample.bound_to(row.reference)(*[x.astype(np.float64) for x in args])
            result = {None: "float32" if want.dtype.kind == "f" else kind, "same": kind}.get(
                row.result_of_integers, row.result_of_integers
            )
            want = want.astype("bool" if want.dtype == bool else result)
        assert_close(sample.bound_to(row.function)(*map(flow.tensor, args)), want, what=f"{row} of {kind}")


@rows(lambda row: row.special)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_special_values(row, kind):
    sample = row.samples()[0]
    args = np.meshgrid(*[SPECIAL.astype(kind)] * len(sample.args))
    with np.errstate(all="ignore"):
        want = np.asarray(sample.bound_to(row.reference)(*[x.astype(np.float64) for x in args]))
        got = sample.bound_to(row.function)(*map(flow.tensor, args))
        want = want.astype(want.dtype if want.dtype == bool else kind)
    assert_close(got, want)
    if want.dtype != bool and len(args) == 1:
        assert_same(np.signbit(got.cpu().numpy()[want == 0]), np.signbit(want[want == 0]))


@rows(lambda row: row.domain)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_whole_range(row, kind):
    """Accurate relative to the value, or near zero to the operand."""
    sizes = np.concatenate([10.0 ** np.arange(-18, 1, 0.37), np.linspace(0.1, 120, 4000)])
    x = np.concatenate([-sizes, sizes])
    x = x[(x > row.domain[0]) & (x < row.domain[1])].astype(kind)
    tolerance = 2e-6 if kind == "float32" else 1e-12
    for sample in {str(sample.kwargs): sample for sample in row.samples()}.values():
        with np.errstate(all="ignore"):
            want = sample.bound_to(row.reference)(x.astype(np.float64)).astype(kind)
        got = as_array(sample.bound_to(row.function)(flow.tensor(x)))
        scale = np.minimum(np.abs(x), 1) + np.abs(want)
        assert_close(got / scale, want / scale, rtol=0, atol=tolerance, what=f"{row}{sample}")


IN_THREADS = [
    pytest.param(row, marks=() if row.name in ("exp", "sigmoid", "add") else pytest.mark.slow, id=row.name)
    for row in POINTWISE
]


@pytest.mark.parametrize("row", IN_THREADS)
def test_large_arrays(row):
    """Several threads compute what one computes, gradients too."""
    sample = row.samples()[0]
    shape = np.broadcast_shapes(*[x.shape for x in sample.args])
    copies = SHARED_FROM // int(np.prod(shape)) + 1
    small, large = (
        with_gradients(row, [np.broadcast_to(x, size).copy() for x in sample.args], sample)
        for size in (shape, (copies, *shape))
    )
    for want, got in zip(small, large, strict=True):
        assert_close(got[-1], want)
        assert_close(got[0], want)


def with_gradients(row: Row, args: list[np.ndarray], sample: Sample) -> list[np.ndarray]:
    """The result and the gradients of its sum."""
    tensors = [flow.tensor(x) for x in args]
    leaves = [x.requires_grad_() for x in tensors if row.gradient and x.dtype.is_floating_point]
    y = sample.bound_to(row.function)(*tensors)
    return [as_array(y), *[as_array(g) for g in (flow.autograd.grad(y.sum(), leaves) if leaves else ())]]


@pytest.mark.cpu_only("shapes are checked before a kernel is chosen")
def test_shapes_that_cannot_be_broadcast():
    two = [row for row in POINTWISE if all(len(sample.args) == 2 for sample in row.samples())]
    assert len(two) > 15
    for row in two:
        x, y = (flow.ones(2, n, dtype=flow.int64 if row.integers else flow.float32) for n in (2, 3))
        with pytest.raises(ShapeError, match=rf"{row}: shapes \(2, 2\) and \(2, 3\) cannot be broadcast"):
            row.function(x, y)


@rows(lambda row: hasattr(flow.Tensor, row.name))
def test_method_and_in_place_form(row):
    for sample in row.samples():
        first, *rest = [flow.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.args]
        if not isinstance(first, flow.Tensor):
            continue
        want = as_tuple(row.function(first, *rest, **sample.kwargs))
        got = as_tuple(getattr(first, row.name)(*rest, **sample.kwargs))
        for a, b in zip(got, want, strict=True):
            assert_same(a, b, what=f"method {row}{sample}")
        if hasattr(first, row.name + "_") and (want[0].shape, want[0].dtype) == (first.shape, first.dtype):
            view, version = first.view(-1), first.version
            assert getattr(first, row.name + "_")(*rest, **sample.kwargs) is first
            assert first.version == version + 1
            assert_same(view, want[0].view(-1), what=f"{row}_{sample}")
