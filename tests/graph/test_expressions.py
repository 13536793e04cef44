"""Every pointwise operator that can be fused: in a region it gives what its own kernel gives, on both devices."""

import importlib
import math
import pkgutil
import sys

import numpy as np
import op_classes
import pytest
from numba import njit
from numba.core.dispatcher import Dispatcher
from programs import ProgramBuilder, assert_same_results, op_names

import miniflow as flow
import miniflow.backends.cpu
import miniflow.formulas
from miniflow.dispatch.dispatcher import Op
from miniflow.graph.codegen import expressions
from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.ir import Instruction, Scalar, Slot
from miniflow.graph.passes.elementwise_fusion import fuse
from miniflow.graph.rewrite import Groups
from miniflow.hostcuda import transcendental
from miniflow.ops.pointwise import Pointwise

OF_NUMPY = {"Exp", "Log", "Tanh"}  # their own kernels are other than those of a region
BITS = {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitwiseLeftShift", "BitwiseRightShift"}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Operators on few elements are fusible too."""
    monkeypatch.setitem(expressions.SMALLEST, "cpu", 0)


def fused(before):
    """The program in regions of at most 40 instructions."""
    assert all(is_fusible(i) for i in before.instructions), op_names(before)
    groups = Groups(before)
    for some in np.array_split(before.instructions, -(-len(before.instructions) // 40)):
        groups.merge(*some)
    after = groups.replaced(fuse)
    assert set(op_names(after)) == {"fused_elementwise"}
    return after


def every_op(b, kind):
    """All pointwise operators that are fast in a loop, on tensors that differ in shape, and on a number."""
    x, y, mask = b.input(5, 7, dtype=kind), b.input(7, dtype=kind), b.input(5, 7, dtype="bool")
    x = b(op_classes.Add, x, y)
    mask = b(op_classes.LogicalNot, mask)
    results = []
    for op in Pointwise.__subclasses__():
        if op.__module__.startswith("miniflow.") and op.__name__ not in OF_NUMPY | BITS and not op.checks_values:
            operands = [
                mask if name in op.formula.bools else (x, y, x, y)[i] for i, name in enumerate(op.formula.operands)
            ]
            for approximate in ("none", "tanh") if "approximate" in op.formula.attributes else ("",):
                attrs = {k: approximate if k == "approximate" else v for k, v in op.formula.attributes.items()}
                instruction = b(op, *operands, **attrs)
                if is_fusible(b.program.instructions[-1]):
                    results.append(instruction)
                else:
                    b.program.instructions.pop()
    if kind != "bfloat16":  # for which `binary` gives these kernels no numbers
        results += [b(op_classes.Mul, x, 0.5), b(op_classes.Sub, 1.0, x), b(op_classes.Where, mask, x, -1.0)]
    return results


@pytest.mark.parametrize(
    "kind", ["float32", *[pytest.param(kind, marks=pytest.mark.slow) for kind in ("float16", "bfloat16", "float64")]]
)
def test_a_region_has_the_bits_of_single_kernels(kind):
    b = ProgramBuilder()
    with np.errstate(all="ignore"):
        before = b.build(*every_op(b, kind))
        assert len(before.instructions) > 40
        assert_same_results(before, fused(before))


def test_compiled_functions_choose_their_rounding():
    """Without `fastmath` one is compiled with that of its first caller: bits would depend on what ran before."""
    for package in (miniflow.backends.cpu, miniflow.formulas):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    modules = [
        m for name, m in list(sys.modules.items()) if name.startswith(("miniflow.backends", "miniflow.formulas"))
    ]
    functions = {f.py_func: f.targetoptions for m in modules for f in vars(m).values() if isinstance(f, Dispatcher)}
    assert len(functions) > 60
    inherit = {f.__qualname__ for f, o in functions.items() if "fastmath" not in o and o.get("inline") != "always"} - {
        "first_outside"
    }  # of integers
    assert not inherit, f"without fastmath: {inherit}"


@pytest.mark.parametrize("name", transcendental.__all__)
def test_what_is_contracted_does_not_depend_on_the_rest_of_a_loop(name):
    """LLVM contracts a product that is used once; two of equal form may become one vector, which is used twice."""
    function = getattr(transcendental, name)
    compiled = njit(lambda x: function(x), error_model="numpy")
    assert abs(compiled(np.float32(0.75)) - getattr(math, name)(0.75)) < 2e-7
    (text,) = compiled.inspect_llvm().values()
    assert "@llvm.fmuladd" in text and " contract " not in text and " fast " not in text


def test_on_cuda():
    b = ProgramBuilder(device="cuda")
    before = b.build(*every_op(b, "float32"))
    assert_same_results(before, fused(before), exact=False, rtol=1e-6, atol=1e-6)


def test_one_number_is_one_argument():
    b = ProgramBuilder()
    x = b.input(5)
    mul, add = op_classes.Mul, op_classes.Add
    before = b.build(b(add, b(mul, x, 0.5), 0.5), b(mul, x, -0.0), b(mul, x, 0.0))
    body = fused(before).instructions[0].attrs["body"]
    assert [value.hex() for value, _ in body.numbers] == ["0x1.0000000000000p-1", "-0x0.0p+0", "0x0.0p+0"]
    assert_same_results(before, fused(before), special=True)


def of_dtypes(name, *inputs, to="float32", device="cpu", unless=None, **attrs):
    """An instruction on arrays of these dtypes; other operands are numbers."""
    slots = [Slot((3,), x, flow.device(device)) if isinstance(x, str) else x for x in inputs]
    return Instruction(Op.by_name[name], slots, [Slot((3,), to, flow.device(device))], attrs, unless=unless)


FLAG = Slot((), "bool", flow.device("cpu"))
F32, BOOL = "float32", "bool"
LEFT_ALONE = {  # what a region takes, and something like it that it does not take
    "is left out at times": (of_dtypes("Add", F32, F32), of_dtypes("Add", F32, F32, unless=FLAG)),
    "refuses values": (of_dtypes("Mul", F32, F32), of_dtypes("BinaryCrossEntropy", F32, F32)),
    "varies": (
        of_dtypes("LeakyRelu", F32, negative_slope=0.1),
        of_dtypes("LeakyRelu", F32, negative_slope=Scalar("slope")),
    ),
    "reads no array": (of_dtypes("Add", F32, 1.0), of_dtypes("Add", 2.0, 1.0)),
    "integers": (of_dtypes("Add", F32, F32), of_dtypes("Add", "int32", "int32", to="int32")),
    "two dtypes": (of_dtypes("Add", "float64", "float64"), of_dtypes("Add", F32, "float64")),
    "a mask of integers": (of_dtypes("Where", BOOL, F32, F32), of_dtypes("Where", "uint8", F32, F32)),
    "a number beside bools": (
        of_dtypes("LogicalAnd", BOOL, BOOL, to=BOOL),
        of_dtypes("LogicalAnd", BOOL, 1.0, to=BOOL),
    ),
    "slow on the CPU": (of_dtypes("Sin", F32, device="cuda"), of_dtypes("Sin", F32)),
    "rounds twice": (of_dtypes("Cast", F32, to="float16"), of_dtypes("Cast", "float64", to="float16")),
    "rounds integers twice": (of_dtypes("Cast", BOOL, to="float16"), of_dtypes("Cast", "int64", to="float16")),
    "makes integers": (of_dtypes("Cast", F32, to="float64"), of_dtypes("Cast", F32, to="int32")),
    "truth of integers": (of_dtypes("ToInteger", F32, to=BOOL), of_dtypes("ToInteger", "int32", to=BOOL)),
    "floats to integers": (of_dtypes("ToInteger", F32, to=BOOL), of_dtypes("ToInteger", F32, to="int64")),
    "not pointwise": (of_dtypes("Relu", F32), of_dtypes("Softmax", F32, dim=0)),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_regions_leave_alone(name):
    taken, left = LEFT_ALONE[name]
    assert is_fusible(taken) and not is_fusible(left)
