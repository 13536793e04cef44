"""`amp.lists`: every op has its place in one of them, or in none by decision."""

import pytest

from miniflow.amp.lists import BLACK, CLEAR, GRAY, KEEP_FLOAT32, UNTOUCHED, WHITE
from miniflow.dispatch import Op
from miniflow.ops.amp_identity import AmpBlackIdentity

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


def test_lists_do_not_overlap():
    lists = [WHITE, GRAY, CLEAR, BLACK, UNTOUCHED]
    assert sum(map(len, lists)) == len(frozenset().union(*lists))


def every_op(base=Op):
    """The op classes of the library that compute something."""
    for op in base.__subclasses__():
        if op.__module__.startswith("miniflow.ops") or op.__module__ == "miniflow.inplace":
            yield op
            yield from every_op(op)


def test_every_differentiable_op_is_in_a_list_or_in_float32():
    """A new op is to be put on a list of `amp.lists`, or here."""
    in_float32 = {
        *("Exp", "Log", "Rsqrt", "Pow", "Sin", "Cos", "Erf", "Softplus", "Remainder", "FloorDivide"),
        *("Sign", "Floor", "Ceil", "Trunc", "Round"),
        *("Mean", "Prod", "ProdOfOthers", "Var", "Std", "Norm", "Logsumexp"),
        *("EmbeddingGrad", "IndexAdd", "IndexIntoZeros", "ScatterAdd", "FoldAdd"),
        *("ScaleLoss", "UnscaleGradient"),
    }
    no_calls = {"Extremum", "ExtremumAlong", "Staircase", "Overwrite"}  # base classes, and a mark on the tape
    lists = WHITE | GRAY | CLEAR | BLACK | UNTOUCHED
    rest = {op.__name__ for op in every_op() if op.backward is not None and op not in lists}
    assert in_float32 | no_calls == rest


def test_views_stay_views():
    assert {op for op in every_op() if op.view} <= CLEAR | {AmpBlackIdentity}


def test_only_ops_that_may_be_in_half_precision_keep_inputs_in_float32():
    assert KEEP_FLOAT32.keys() <= GRAY
