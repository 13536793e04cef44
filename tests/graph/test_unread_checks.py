"""An op that refuses some values refuses them in a graph too, whether or not anybody reads its result."""

import inspect
import itertools

import numpy as np
import pytest
from checks import assert_same
from compare import count_comparison

import miniflow as flow
from miniflow import nn
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.errors import IndexRangeError
from miniflow.graph.ir import Instruction, Slot
from miniflow.graph.saved.attributes import attribute_names, known_ops
from miniflow.graph.saved.operands import check_operands, inferred
from miniflow.nn import functional as F
from miniflow.ops.pointwise import Pointwise


def set_item(i):
    flow.zeros(3)[i] = 1.0


INDICES, PLACES, PROBABILITIES = ([0, 2], [0, 9]), ([0, 2], [0, -4]), ([0.0, 1.0], [0.5, 2.0])
IMAGES = [0.0, 1.0], [0.0, 2.0]
# the name of an op -> a function of one tensor that runs it, values that it takes, and values that it refuses
CASES = {
    "Bernoulli": (flow.bernoulli, *PROBABILITIES),
    "BinaryCrossEntropy": (lambda p: F.binary_cross_entropy(p, flow.ones(2)), *PROBABILITIES),
    "CrossEntropy": (lambda y: F.cross_entropy(flow.zeros(2, 3), y), *INDICES),
    "Embedding": (lambda i: F.embedding(i, flow.zeros(3, 4)), *INDICES),
    "Gather": (lambda i: flow.zeros(3).gather(0, i), *INDICES),
    "Index": (lambda i: flow.zeros(3)[i], *PLACES),
    "Multinomial": (lambda w: flow.multinomial(w, 1), [0.0, 1.0], [0.0, 0.0]),
    "Inv": (lambda d: flow.linalg.inv(flow.diag(d)), [1.0, 2.0], [1.0, 0.0]),
    "Solve": (lambda d: flow.linalg.solve(flow.diag(d), flow.ones(2)), [1.0, 2.0], [1.0, 0.0]),
    "Cholesky": (lambda d: flow.linalg.cholesky(flow.diag(d)), [1.0, 2.0], [1.0, -1.0]),
    "RoiAlign": (lambda i: flow.roi_align(flow.zeros(2, 1, 3, 3), F.pad(i[:, None], (0, 4)), 1.0, 1, 1), *IMAGES),
    "OneHot": (lambda y: F.one_hot(y, 3), *INDICES),
    "FloorDivide": (lambda n: 7 // n, [1, 2], [1, 0]),
    "Fmod": (lambda n: flow.fmod(flow.tensor(7), n), [1, 2], [1, 0]),
    "Remainder": (lambda n: 7 % n, [1, 2], [1, 0]),
    "TruncDivide": (lambda n: flow.div(7, n, rounding_mode="trunc"), [1, 2], [1, 0]),
    "Scatter": (lambda i: flow.zeros(3).scatter(0, i, flow.ones(2)), *INDICES),
    "ScatterAdd": (lambda i: flow.zeros(3).scatter_add(0, i, flow.ones(2)), *INDICES),
    "SetItem": (set_item, *PLACES),
}
# gradients, whose indices the op before them has checked; some check them again, lest a loaded graph harms memory
OTHER_SHAPES = {"Inv", "Solve", "Cholesky", "RoiAlign"}  # of square matrices and images, which are not tried
BEHIND_A_CHECK = {"EmbeddingGrad", "IndexIntoZeros"}


class Unread(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self, x):
        self.function(x)
        return x + 0


@pytest.mark.parametrize("name", CASES)
def test_values_that_an_unread_op_refuses(name):
    function, good, bad = CASES[name]
    graph = Unread(function)
    assert graph(flow.tensor(good)).tolist() == good
    with pytest.raises((ValueError, IndexError, ZeroDivisionError)) as eager:
        function(flow.tensor(bad))
    with pytest.raises(type(eager.value)) as replayed:
        graph(flow.tensor(bad))
    assert str(replayed.value) == str(eager.value)
    count_comparison()


def test_no_parameter_is_updated_before_values_are_refused():
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(300, 300)  # large enough to be updated early
            self.add_optimizer(flow.optim.SGD(self.layer.parameters(), 0.1))

        def build(self, x, classes):
            self.layer(x).square().sum().backward()
            return F.one_hot(classes, 3)

    graph, x = Train(), flow.ones(2, 300)
    graph(x, flow.tensor([2]))
    before = graph.layer.weight.detach().numpy().copy()
    with pytest.raises(IndexRangeError, match="one_hot: index 3 is out of range"):
        graph(x, flow.tensor([3]))
    assert_same(graph.layer.weight.detach(), before)


# which ops refuse values is found by trying

ATTRIBUTES = {
    "dim": 0, "dims": (0,), "shape": (3, 4), "ignore_index": -100, "reduction": "sum", "label_smoothing": 0.0,
    "padding_idx": -1, "rows": 3, "num_classes": 3, "seed": 1, "offset": 2, "num_samples": 1, "replacement": True,
    "basic": (...,), "keepdim": False, "diagonal": 0, "p": 2.0, "correction": 1, "value": 0.0, "low": 0, "high": 3,
    "exponent": 2, "dtype": np.dtype(np.int64), "scale": 2.0, "upper": True, "transpose_x": False, "transpose_y": False,
}  # fmt: skip
OF_UNTRIED_OPS = {  # windows, shapes and parts, which no values can make wrong
    "UPLO", "aligned", "atol", "ceil_mode", "cell", "count", "count_include_pad", "descending", "dilation", "dim0",
    "dim1", "dim2", "divisor_override", "eps", "full_matrices", "grad_sbp", "groups", "image", "index", "kernel",
    "mean", "mode", "norm_type", "output_size", "padding", "placement", "reverse", "rtol", "sampling_ratio", "sbp",
    "size", "sizes", "source", "spatial_scale", "stable", "std", "step", "steps", "stride", "target", "training",
    "widths",
}  # fmt: skip
SHAPES, KINDS = ((), (3,), (3, 4), (1, 3)), (np.float32, np.int64)
WILD = {np.float32: np.float32([np.nan, -7.5, 1e30]), np.int64: np.int64([-7, 0, 99, 10**9])}


def operands(op, count):
    """`count` operands in many ways: ones, which are valid as numbers, indices and probabilities alike, or None.

    Those of a pointwise operator have one shape and dtype, since each form and dtype of its loop takes compiling.
    """
    if issubclass(op, Pointwise):
        kinds = [[np.ones(3, kind), None] for kind in KINDS]
    else:
        kinds = [[*[np.ones(shape, kind) for shape in SHAPES for kind in KINDS], None]]
    return [arrays for choice in kinds for arrays in itertools.product(choice, repeat=count)]


def positional_and_attributes(op):
    if issubclass(op, Pointwise):
        return len(op.formula.operands), op.formula.attributes
    parameters = inspect.signature(op.infer).parameters.values()
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    attrs = {name: ATTRIBUTES.get(name) for name in attribute_names(op)}
    return len(inputs), attrs


def fits(op, arrays, attrs):
    """Whether a file may hold the op with operands of these shapes and dtypes: then the kernel leaves memory alone."""
    slots = [None if x is None else Slot(x.shape, x.dtype, flow.device("cpu")) for x in arrays]
    try:
        inferred(Instruction(op, slots, [], attrs))
        check_operands(op, slots, attrs)
    except Exception:
        return False
    return True


def runs(op, arrays, attrs):
    """Whether `infer` and the kernel take these values."""
    try:
        with np.errstate(all="ignore"):
            kernel_on(op, "cpu")(*arrays, **attrs)
    except Exception:
        return False
    return True


def wilder(arrays):
    """The operands with extreme values in one of them."""
    for position, x in enumerate(arrays):
        if x is not None and x.dtype.type in WILD:
            values = np.resize(WILD[x.dtype.type], x.shape)
            yield [*arrays[:position], values, *arrays[position + 1 :]]


def refuses_values(op):
    """Whether the op takes some operands, and refuses others of the same shapes and dtypes; None if it takes none."""
    if issubclass(op, Pointwise) and op.check is None and kernel_of("cpu", op.__name__).ufunc is None:
        return False  # a compiled loop raises nothing
    count, attrs = (4, {}) if op.groups else positional_and_attributes(op)
    if count > 3 or None in attrs.values():
        return None
    fitting = (list(arrays) for arrays in operands(op, count) if fits(op, arrays, attrs))
    taken = [arrays for arrays in fitting if runs(op, arrays, attrs)]
    return any(not runs(op, wild, attrs) for arrays in taken for wild in wilder(arrays)) if taken else None


def test_all_ops_that_refuse_values_are_marked():
    ops = known_ops()
    tried = {name: refuses_values(op) for name, op in ops.items()}
    found = {name for name, refuses in tried.items() if refuses}
    marked = {name for name, op in ops.items() if op.checks_values}
    assert found - BEHIND_A_CHECK == marked - BEHIND_A_CHECK - OTHER_SHAPES
    assert marked - BEHIND_A_CHECK == set(CASES)
    untried = [op for name, op in ops.items() if tried[name] is None and not op.groups]
    names = {name for op in untried for name in positional_and_attributes(op)[1]}
    assert names - set(ATTRIBUTES) == OF_UNTRIED_OPS, "let ATTRIBUTES have a value for the new attribute"
    count_comparison()
