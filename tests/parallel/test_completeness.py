"""Signatures that are right for random numbers and are not stated: each has a reason.

For each operator that the samples run, every layout of the operands on two ranks is tried; what the kernel makes of the
shards is compared with parts of the result. A combination that fits has to follow from a stated signature, or to be
explained below.
"""

import itertools

import numpy as np
import pytest
from compare import count_comparison
from test_signatures import EVERY, calls_of, four_ranks, parts  # noqa: F401  (a fixture)

import miniflow as flow
from miniflow.dispatch import dispatcher
from miniflow.parallel import partition
from miniflow.parallel.placement import placement
from miniflow.sbp import B, P, S, show

RANKS = 2
# of operators with rows of their own; in these eps, masks, zeros or the logarithm of 0 hide what a layout does
COMPOSED = (
    "smooth_l1_loss", "huber_loss", "poisson_nll_loss", "gaussian_nll_loss", "cosine_embedding_loss", "ctc_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss", "pairwise_distance",
)  # fmt: skip
TRUSTING = ("CrossEntropyGrad", "MaxPool2dGrad")  # their kernels go wherever indices that do not fit point
ZERO = "right since the number, or the array, in the other place is 0, which a signature cannot know"
CHANCE = "the terms of a partial sum rarely are what the operator asks of their sum: zero, equal, nan, of one sign"
PARAMETERS = "weights, biases or statistics that are partial sums: no program has them"
REASONS = {
    "AvgPool2d": "windows of one column, which only the pooling of volumes has: it folds two dims into one",
    "Where": ZERO,
    "Scatter": ZERO,
    "SetItem": ZERO,
    "PowGradY": ZERO,
    **dict.fromkeys(
        "Eq Ne LogicalAnd LogicalOr LogicalXor Isnan Isinf Isfinite AbsGrad Any ClampGradMax ClampGradMin "
        "Argsort Gather Heaviside Isposinf Isneginf NanToNum NanToNumGrad Xlogy XlogyGradX".split(),
        CHANCE,
    ),
    **dict.fromkeys("LayerNorm LayerNormGrad BatchNorm BatchNormInference BatchNormGrad".split(), PARAMETERS),
}

# of single rows: what is added there, subtracted from (by pinv, of matrices that have an inverse), shifted in, or
# comes back from a branch that is not taken, is 0; and bounds within which all elements lie
ZERO_IN = {
    **dict.fromkeys(("cumprod", "logcumsumexp"), "Pad"),
    **dict.fromkeys(("quantile", "nanquantile", "scatter_nd", "scatter_reduce"), "Add"),
    **dict.fromkeys(("median", "nanmedian"), "Add Mul"),
    "diagonal_scatter": "ViewScatter",
    "embedding_bag": "Maximum",
    "hardtanh": "Hardtanh HardtanhGrad",
    "linalg": "Sub",
}


def choices(x):
    """The layouts of an operand; None for a number or an absent one."""
    if not isinstance(x, np.ndarray):
        return [B]
    return [B, *([P] if x.dtype.kind == "f" else []), *[S(d) for d, n in enumerate(x.shape) if n >= 2 * RANKS]]


def fitting(shards, want):
    """The layouts in which what two ranks computed makes up an array."""
    a, b = shards
    found = []
    if a.shape == b.shape == want.shape:
        if want.dtype != bool and np.allclose(a + b, want, equal_nan=True):
            found.append(P)
        if np.allclose(a, want, equal_nan=True) and np.allclose(b, want, equal_nan=True):
            found.append(B)
    for d, n in enumerate(want.shape):
        if n >= 2 * RANKS:
            first, second = (np.take(want, range(*partition.part(n, RANKS, i)), d) for i in range(RANKS))
            if (a.shape, b.shape) == (first.shape, second.shape):
                if np.allclose(a, first, equal_nan=True) and np.allclose(b, second, equal_nan=True):
                    found.append(S(d))
    return found


def valid(case, where):
    """All signatures that fit: of operands, of results."""
    op, arrays, attrs = case
    random = np.random.default_rng(0)
    want = dispatcher.run_kernel(op, arrays, attrs)
    want = [want] if op.single else want
    for given in itertools.product(*map(choices, arrays)):
        spread = [
            parts(x, s, where, random) if isinstance(x, np.ndarray) else x for x, s in zip(arrays, given, strict=True)
        ]
        made = []
        try:
            for rank in where.flat:
                local = [x[rank] if isinstance(x, dict) else x for x in spread]
                op.infer(*local, **attrs)
                with np.errstate(all="ignore"):
                    got = dispatcher.run_kernel(op, local, attrs)
                made.append([got] if op.single else got)
        except Exception:  # noqa: BLE001, S112  (the parts do not fit together)
            continue
        for results in itertools.product(
            *[fitting(pair, y) for pair, y in zip(zip(*made, strict=True), want, strict=True)]
        ):
            yield given, results


def follows(signature, stated):
    """Whether a stated signature gives it, perhaps after boxing that costs nothing."""
    given, results = signature
    return any(results == outs and given == ins for ins, outs in stated)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in EVERY if row.name not in COMPOSED], ids=str)
def test_what_is_not_stated_has_a_reason(row, monkeypatch):
    missing = {}
    flow.manual_seed(0)  # few random numbers of two parts may be those of the whole by chance
    where = placement("cpu", range(RANKS))
    for op, arrays, attrs in calls_of(row, monkeypatch):
        if (
            op.__name__ in TRUSTING
            or op.sbp is None
            or op.shape_depends_on_values
            or op.on_shard is not dispatcher.Op.on_shard
            or "shape" in attrs
        ):
            continue
        stated = [*op.sbp(*arrays, ranks=RANKS, **attrs), ((B,) * len(arrays), (B,) * len(op.outputs))]
        for signature in valid((op, arrays, attrs), where):
            if not follows(signature, stated) and not all(one is B for one in signature[0]):
                missing.setdefault(op.__name__, set()).add(f"{show(signature[0])} -> {show(signature[1])}")
    count_comparison()
    unexplained = {
        name: sorted(found)
        for name, found in missing.items()
        if name not in (*REASONS, *ZERO_IN.get(row.name, "").split())
    }
    assert not unexplained
