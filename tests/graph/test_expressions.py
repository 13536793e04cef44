"""Each op that can be fused: in a region it gives what its own kernel gives, in every dtype, on both devices."""

import numpy as np
import pytest
from programs import ProgramBuilder, assert_same_results, op_names

from miniflow.device import CPU
from miniflow.graph.codegen.expressions import LOGICAL, PLAIN, SPECIAL, is_fusible
from miniflow.graph.ir import Instruction, Slot
from miniflow.graph.passes import elementwise_fusion
from miniflow.ops import activation, comparison, dropout, elementwise, mask, promotion

OPS = {
    name: op
    for module in (activation, comparison, dropout, elementwise, mask, promotion)
    for name, op in vars(module).items()
    if isinstance(op, type)
}
ONE = {"Neg", "Abs", "Sign", "Relu", "Isnan", "Isinf", "Isfinite", "Sqrt", "Rsqrt"}
INEXACT = {"Exp", "Log", "Tanh", "Erf", "Sigmoid", "Silu"}
GRADIENTS = {"ErfGrad", "SigmoidGrad", "SiluGrad"}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Regions of few elements are formed too."""
    monkeypatch.setitem(elementwise_fusion.SMALLEST, "cpu", 0)


def fused(before, rounds=1):
    """The program after the pass, in which everything that can be is fused."""
    assert all(is_fusible(i) for i in before.instructions), op_names(before)
    after = elementwise_fusion.run(before)
    assert len(after.instructions) == rounds and set(op_names(after)) == {"fused_elementwise"}
    return after


def exact_ops(b, kind):
    """Every op without polynomials in it, on x, y and a number."""
    x, y = b.input(5, 7, dtype=kind), b.input(7, dtype=kind)
    x = b(elementwise.Add, x, y)
    plain = [n for n in PLAIN if n not in ONE | INEXACT | GRADIENTS | {"ReluGrad"}]
    results = [b(OPS[name], x, y) for name in plain] + [b(OPS[name], x) for name in sorted(ONE)]
    results.append(b(activation.ReluGrad, x, x))
    results += [b(elementwise.PowScalar, x, exponent=e) for e in (1, 2, -1, 0.5)]
    results += [b(elementwise.Clamp, x, min=low, max=high) for low, high in ((-0.3, None), (None, 0.3), (-1, 1))]
    return results


def numbers_and_masks(b, kind):
    """Ops with numbers among the operands, with bools, and casts."""
    x, y = b.input(5, 7, dtype=kind), b.input(5, 7, dtype="bool")
    doubled = b(elementwise.Add, x, x)
    ops = (elementwise.Add, elementwise.Sub, elementwise.Mul, elementwise.Div, comparison.Lt, elementwise.Maximum)
    number = b.constant(0.3, kind) if kind == "bfloat16" else 0.3  # `binary` gives these kernels no numbers
    pairs = [b(op, *operands) for op in ops for operands in ((doubled, number), (number, doubled))]
    positive = b(comparison.Gt, doubled, b(elementwise.Neg, doubled))
    logical = [b(OPS[n], positive, y) for n in LOGICAL if not n.endswith("Not")]
    logical += [b(OPS[n], positive) for n in LOGICAL if n.endswith("Not")]
    chosen = [b(elementwise.Where, positive, doubled, -1.0), b(mask.MaskedFill, doubled, positive, value=1e30)]
    chosen += [b(elementwise.Where, positive, 0.1, doubled), b(dropout.DropoutGrad, doubled, y, scale=1 / 0.9)]
    cast = [
        b(promotion.Cast, doubled, dtype=np.dtype("float32")),
        b(promotion.ToInteger, doubled, dtype=np.dtype(bool)),
    ]
    return [*pairs, *logical, *chosen, *cast]


def inexact_ops(b, kind):
    """Every op with a polynomial in it, or of several roundings."""
    x, y = b.input(5, 7, dtype=kind), b.input(5, 7, dtype=kind)
    x = b(elementwise.Add, x, y)
    results = [b(OPS[name], x) for name in sorted(INEXACT)] + [b(OPS[name], x, y) for name in sorted(GRADIENTS)]
    for approximate in ("none", "tanh"):
        results.append(b(activation.Gelu, x, approximate=approximate))
        results.append(b(activation.GeluGrad, y, x, approximate=approximate))
    results.append(b(activation.Softplus, x, beta=1.5, threshold=1.0))
    results.append(b(activation.SoftplusGrad, y, x, beta=1.5, threshold=1.0))
    return results + [b(elementwise.PowScalar, x, exponent=e) for e in (3, 4, -2)]


@pytest.mark.parametrize("make", [exact_ops, numbers_and_masks])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float64"])
def test_arithmetic_has_the_same_bits(make, kind):
    b = ProgramBuilder()
    with np.errstate(all="ignore"):
        before = b.build(*make(b, kind))
        assert_same_results(before, fused(before), special=make is numbers_and_masks)


@pytest.mark.parametrize(
    "kind, rtol, atol", [("float32", 1e-6, 1e-6), ("float16", 2e-3, 1e-3), ("bfloat16", 1.6e-2, 8e-3)]
)
def test_functions_agree(kind, rtol, atol):
    b = ProgramBuilder()
    with np.errstate(all="ignore"):
        before = b.build(*inexact_ops(b, kind))
        assert_same_results(before, fused(before), exact=False, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "make, kind, rtol, atol", [(numbers_and_masks, "float16", 2e-3, 1e-3), (inexact_ops, "float32", 1e-6, 1e-6)]
)
def test_on_cuda(make, kind, rtol, atol):
    b = ProgramBuilder(device="cuda")
    with np.errstate(all="ignore"):
        before = b.build(*make(b, kind))
        assert_same_results(before, fused(before), exact=False, rtol=rtol, atol=atol)


def test_every_entry_of_the_table_is_tested():
    b = ProgramBuilder()
    with np.errstate(all="ignore"):
        for make in (exact_ops, numbers_and_masks, inexact_ops):
            make(b, "float32")
    made = {instruction.op.__name__ for instruction in b.program.instructions}
    assert made >= PLAIN.keys() | LOGICAL.keys() | SPECIAL.keys()


def test_a_number_beside_bfloat16_is_left_to_numpy():
    """Its result is float32: eager mode casts first, so that no recorded program has it."""
    x = Slot((5,), "bfloat16", CPU)
    instruction = Instruction(elementwise.Add, [x, 0.5], [x.like()])
    assert not is_fusible(instruction)
    assert is_fusible(instruction.with_(inputs=[x, x]))


def test_one_number_is_one_argument():
    b = ProgramBuilder()
    x = b.input(5)
    before = b.build(
        b(elementwise.Add, b(elementwise.Mul, x, 0.5), 0.5), b(elementwise.Mul, x, -0.0), b(elementwise.Mul, x, 0.0)
    )
    body = fused(before).instructions[0].attrs["body"]
    assert [value.hex() for value, _ in body.numbers] == ["0x1.0000000000000p-1", "-0x0.0p+0", "0x0.0p+0"]
    assert_same_results(before, fused(before), special=True)
