"""What the tape keeps of every operator for its backward, beside the memory of its inputs and results.

An operator may keep less than its largest operand has, such as statistics of rows and chosen indices; what keeps whole
temporaries is listed with its reason.
"""

import numpy as np
import pytest
from compare import count_comparison
from samples import ROWS, Row, Sample, away

import miniflow as flow

pytestmark = pytest.mark.cpu_only("the tape does not depend on the device")

COMPOSED = "a loss of several operators; each keeps what its own gradient reads"
INDICES = "indices, int64"
# row -> how many times the bytes of the largest operand may be kept, and why
EXCEPTIONS = {
    "pow": (1, "1 / x^2 keeps x^2"),
    "float_power": (2, "operands in float64"),
    "norm": (1, "p = inf keeps |x|"),
    **dict.fromkeys(("msort", "median", "nanmedian", "gather_nd", "tensor_scatter_nd_update"), (3, INDICES)),
    **dict.fromkeys(("quantile", "nanquantile"), (4, f"the sorted elements and their {INDICES}")),
    **dict.fromkeys(("scatter_reduce", "scatter"), (5, "products and extrema: masks, counts and the other factors")),
    "masked_scatter": (2, "the place of every element, int64"),
    "grid_sample": (3, "the corners of every point and their weights"),
    "conv3d": (2, "the planes that a kernel covers, side by side"),
    "group_norm": (1, "mean and rstd of each group, float64"),
    **dict.fromkeys(("instance_norm", "rms_norm", "local_response_norm"), (2, "the normalized elements")),
    "embedding_bag": (4, INDICES),
    "multilabel_margin_loss": (4, "the differences of all pairs"),
    "cosine_similarity": (4, "both operands broadcast, and divided by their lengths"),
    **dict.fromkeys(("pairwise_distance", "cdist", "pdist"), (4, "the differences of all pairs")),
    "mse_loss": (1, "the differences"),
    "l1_loss": (1, "the differences"),
    **dict.fromkeys(("margin_ranking_loss", "soft_margin_loss"), (1, COMPOSED)),
    **dict.fromkeys(
        ("binary_cross_entropy_with_logits", "multilabel_soft_margin_loss", "cosine_embedding_loss", "kl_div",
         "multi_margin_loss"), (3, COMPOSED)),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss", "gaussian_nll_loss"), (4, COMPOSED)),
    **dict.fromkeys(("triplet_margin_loss", "triplet_margin_with_distance_loss"), (5, "three distances")),
    "poisson_nll_loss": (6, COMPOSED),
    "ctc_loss": (9, "the likelihoods of all frames and labels"),
}  # fmt: skip


def owner(x):
    """The array that has the memory."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def tensors(value):
    if isinstance(value, flow.Tensor):
        return [value]
    return [x for part in value for x in tensors(part)] if isinstance(value, tuple | list) else []


def as_tensors(value, wanted=True):
    """Arrays as tensors, floating ones in float32 and, if that is wanted, with gradients."""
    if isinstance(value, np.ndarray):
        floating = value.dtype.kind == "f"
        return flow.tensor(value, dtype=flow.float32 if floating else None, requires_grad=floating and wanted)
    return type(value)(map(as_tensors, value)) if isinstance(value, tuple | list) else value


def saved_bytes(function, *args, constants=(), **kwargs):
    """The bytes that the tape keeps beside the memory of arguments and results, and those of the largest of these.

    The arguments at the positions `constants` get no gradient.
    """
    args = tuple(as_tensors(x, i not in constants) for i, x in enumerate(args))
    results = tensors(function(*args, **kwargs))
    operands = [owner(x._array) for x in [*tensors(args), *tensors(list(kwargs.values())), *results]]
    nodes, kept = {x._edge[0] for x in results if x._edge is not None}, {}
    todo = list(nodes)
    assert todo, "nothing was recorded"
    while todo:
        node = todo.pop()
        for value, *_ in getattr(node, "_saved", None) or ():
            if isinstance(value, flow.Tensor):
                kept[id(owner(value._array))] = owner(value._array)
        fresh = {edge[0] for edge in getattr(node, "edges", ()) if edge is not None} - nodes
        nodes |= fresh
        todo += fresh
    for x in operands:
        kept.pop(id(x), None)
    return sum(x.nbytes for x in kept.values()), max(x.nbytes for x in operands)


@pytest.mark.parametrize("row", [row for row in ROWS if row.gradient is not None], ids=str)
def test_no_whole_temporaries_are_kept(row: Row):
    limit, _ = EXCEPTIONS.get(row.name, (1, None))
    for sample in row.samples():
        constants = [
            i for i, x in enumerate(sample.args) if isinstance(x, np.ndarray) and not row.has_gradient(sample, i)
        ]
        found, largest = saved_bytes(row.function, *sample.args, constants=constants, **sample.kwargs)
        bound = limit * largest
        assert found < bound or found == (bound if row.name in EXCEPTIONS else 0), f"{sample} keeps {found} bytes"
    count_comparison()


EXACTLY = [  # operators of models, and the bytes that are kept: the reason for every byte
    ("add", Sample(away(8, 4), away(4)), 0),
    ("sub", Sample(away(8, 1), away(4)), 0),
    ("mul", Sample(away(8, 4), away(4)), 0),
    ("div", Sample(away(8, 4), away(8, 1)), 0),
    ("narrow", Sample(away(8, 4), 1, 1, 2), 0),
    ("select", Sample(away(8, 4), 0, 3), 0),
    ("softmax", Sample(away(8, 4), -1), 0),
    ("relu", Sample(away(8, 4)), 0),
    ("layer_norm", Sample(away(8, 4), (4,), away(4), away(4)), 2 * 8 * 8),  # mean and rstd of 8 rows, float64
    ("max_pool2d", Sample(away(1, 2, 4, 4), 2), 8 * 4),  # an index for every result, int32
    (
        "cross_entropy",
        Sample(away(5, 4), np.array([1, 0, 3, 2, 2])),
        6 * 8,
    ),  # a statistic of every row and one of all, float64
]


@pytest.mark.parametrize(("name", "sample", "want"), EXACTLY, ids=[name for name, *_ in EXACTLY])
def test_bytes_kept(name, sample, want):
    function = getattr(flow, name, None) or getattr(flow.nn.functional, name)
    found, _ = saved_bytes(function, *sample.args, **sample.kwargs)
    count_comparison()
    assert found == want


def test_slices_keep_nothing():
    found, _ = saved_bytes(lambda x: x[1:, ::2], away(8, 4))
    count_comparison()
    assert found == 0


def test_a_temporary_is_found():
    found, largest = saved_bytes(lambda x: (x * 2) * (x * 3), away(8, 4))
    count_comparison()
    assert found == 2 * largest
