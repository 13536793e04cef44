"""Matrix products against NumPy in float64: the kernel around the sizes of its tiles, and the backend."""

import numpy as np
import pytest
from both import on_device, run_kernel
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, ON_HOST, Case, compile_case, run_checked, spilled

from miniflow.kernels.matmul import DEPTH, SIDE, THREADS, register_tiled

pytestmark = pytest.mark.filterwarnings("ignore:argument . is a NumPy array")
draw = np.random.default_rng(0)
NO_BIAS = np.empty(0, np.float32)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


def nans(*shape, kind=np.float32):
    return np.full(shape, np.nan, kind)


def exact(x, y, kind=np.float32):
    return (x.astype(np.float64) @ y.astype(np.float64)).astype(kind)


def blocks(n, side):
    return max(1, -(-n // side))


def stacked(x, y, bias, transposed_x=False, transposed_y=False):
    """x (B or 1, M, K) and y (B or 1, K, N), laid out as the kernel is told, through the kernel."""
    batch = max(len(x), len(y))
    m, n = x.shape[1], y.shape[2]
    out = nans(batch, m, n)
    x, y = (np.ascontiguousarray(a.swapaxes(1, 2)) if t else a for a, t in ((x, transposed_x), (y, transposed_y)))
    register_tiled[(blocks(n, SIDE), blocks(m, SIDE), batch), THREADS](x, y, bias, out, transposed_x, transposed_y)
    return out


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize(
    "m, k, n",
    [
        (1, 1, 1),
        (SIDE, DEPTH, SIDE),
        (SIDE - 1, DEPTH + 1, SIDE + 1),
        (SIDE + 1, DEPTH - 1, 33),
        (7, 3 * DEPTH + 5, 2 * SIDE + 1),
    ],
)
def test_register_tiled(m, k, n, transposed):
    x, y = numbers(1, m, k), numbers(1, k, n)
    assert_close(stacked(x, y, NO_BIAS, *transposed), exact(x, y), atol=1e-5)


def test_register_tiled_without_an_inner_dim():
    bias = numbers(5)
    assert_same(stacked(numbers(2, 3, 0), numbers(2, 0, 5), bias), np.broadcast_to(bias, (2, 3, 5)).copy())


@pytest.mark.parametrize("batches", [(3, 3), (3, 1), (1, 3)], ids=str)
def test_stacks_and_bias(batches):
    x, y, bias = numbers(batches[0], 9, 20), numbers(batches[1], 20, 70), numbers(70)
    want = x.astype(np.float64) @ y.astype(np.float64) + bias
    assert_close(stacked(x, y, bias), want.astype(np.float32), atol=1e-5)


def on_cuda(op, *arrays, layout="contiguous", **attrs):
    """The op's kernel of the cuda backend, with these operands; None passes through."""
    return run_kernel("cuda", op, *[a if a is None else on_device(a, layout) for a in arrays], **attrs).numpy()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "reversed"])
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_layouts(transposed, layout):
    x, y = numbers(9, 20), numbers(20, 7)
    given = [np.ascontiguousarray(a.T) if t else a for a, t in zip((x, y), transposed, strict=True)]
    got = on_cuda("Matmul", *given, layout=layout, transpose_x=transposed[0], transpose_y=transposed[1])
    assert_close(got, exact(x, y), atol=1e-5)


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 1, 3, 5), (3, 5, 4)),
        ((4, 3, 5), (5, 2)),
        ((3, 5), (4, 5, 2)),
        ((2, 3, 1, 4), (1, 3, 4, 2)),
        ((0, 3, 2), (2, 5)),
    ],
    ids=str,
)
def test_batches_broadcast(shapes):
    x, y = (numbers(*shape) for shape in shapes)
    assert_close(on_cuda("Matmul", x, y, transpose_x=False, transpose_y=False), exact(x, y), atol=1e-5)


def test_more_matrices_than_a_grid_numbers(monkeypatch):
    monkeypatch.setattr("miniflow.backends.cuda.launch.GRID_LIMIT", 2)
    x, y = numbers(5, 3, 4), numbers(5, 4, 2)
    for left, right in ((x, y), (x[:1], y), (x, y[:1])):
        assert_close(
            on_cuda("Matmul", left, right, transpose_x=False, transpose_y=False), exact(left, right), atol=1e-5
        )


@pytest.mark.parametrize("kind", ["uint8", "int8", "int64", "bool"])
def test_integers_wrap_around(kind):
    x, y = (draw.integers(0, 2 if kind == "bool" else 100, shape).astype(kind) for shape in ((5, 20), (20, 3)))
    assert_same(on_cuda("Matmul", x, y, transpose_x=False, transpose_y=False), x @ y)


@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_other_floats(kind):
    x, y = numbers(5, 20, kind=kind), numbers(20, 3, kind=kind)
    assert_close(on_cuda("Matmul", x, y, transpose_x=False, transpose_y=False), exact(x, y, kind))


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (70, 20)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_linear(shape, biased):
    x, weight, bias = numbers(*shape), numbers(65, shape[1]), numbers(65)
    want = exact(x, weight.T) + bias if biased else exact(x, weight.T)
    assert_close(on_cuda("Linear", x, weight, bias if biased else None), want, atol=1e-5)


@pytest.mark.skipif(not ON_HOST, reason="accesses are counted by the checked executor, which belongs to the host")
@pytest.mark.parametrize("transposed", [(False, False), (True, True)], ids=str)
def test_what_is_read(transposed):
    """Global reads for each output as the head of the file says, all coalesced."""
    from miniflow.hostcuda import check

    k = 2 * DEPTH
    x, y = numbers(SIDE, k), numbers(k, SIDE)
    x, y = (np.ascontiguousarray(a.T) if t else a for a, t in zip((x, y), transposed, strict=True))
    arguments = [x[None], y[None], NO_BIAS, nans(1, SIDE, SIDE), *transposed]
    total = check.launch(register_tiled, arguments, 1, THREADS, 0, profile=True).total
    assert total.global_loads == 2 * k / SIDE * SIDE * SIDE
    assert total.sectors == total.ideal_sectors
    assert total.worst_conflict <= 2


CASES = [
    Case(
        f"register_tiled{', x transposed' * transposed_x}{', y transposed' * transposed_y}",
        register_tiled,
        lambda transposed_x=transposed_x, transposed_y=transposed_y: [
            numbers(*((1, 5, 9) if transposed_x else (1, 9, 5))),
            numbers(*((1, 3, 5) if transposed_y else (1, 5, 3))),
            numbers(3),
            nans(1, 9, 3),
            transposed_x,
            transposed_y,
        ],
        1,
        THREADS,
    )
    for transposed_x in (False, True)
    for transposed_y in (False, True)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES[:1], ids=str)
def test_ptx(case, cc):
    made = compile_case(case, cc)
    assert [name for name, ptx in made.items() if "ld.shared.v4.f32" in ptx] == [*made]  # rows are read four at a time
    assert spilled(made) == []  # sums are in registers
