"""`passes.sparse_update`: equal to the dense update where it says so, lazy where it says so, and never on all rows."""

import warnings

import numpy as np
import pytest
from checks import assert_close, assert_same
from op_classes import Add, Div, Mul
from programs import ProgramBuilder, assert_same_results, assert_unchanged
from training import Training, micro_batches

import miniflow as flow
from miniflow import nn
from miniflow.graph.ir import BACKWARD, UPDATE
from miniflow.graph.passes import accumulation
from miniflow.graph.passes.sparse_update import run
from miniflow.ops.embedding import Embedding, EmbeddingGrad
from miniflow.ops.loss_scale import AnyNonFinite, UnscaleGradient
from miniflow.optim.sgd import SgdUpdate

SGD = {"lr": 0.5, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}
ROWS = 50
TABLE = {"model.table.weight"}


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def indices(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(0, ROWS // 2, shape)


def hand_written(lookups=1):
    """The gradient of lookups, a fourth of it, unscaled and checked; the update is left out if it is not finite."""
    b = ProgramBuilder()
    i, dy, table = b.input(4, dtype="int64"), b.input(4, 2), b.parameter(3, 2, name="table")
    y = b(Embedding, i, table, padding_idx=-1)
    b.phase = BACKWARD
    gradient = b(EmbeddingGrad, dy, i, rows=3, padding_idx=1)
    for _ in range(lookups - 1):
        gradient = b(Add, gradient, b(EmbeddingGrad, y, i, rows=3, padding_idx=-1))
    gradient = b(Div, gradient, 4.0)
    b.phase = UPDATE
    found = b(AnyNonFinite, gradient)
    gradient = b(UnscaleGradient, gradient, scale=8.0)
    b.unless = found
    b.write(table, b(SgdUpdate, table, gradient, None, fresh=[False], **SGD))
    b.unless = None
    return b.build(y, found)


GOLDEN = """\
program:
  %0:i64[4] = input input.0
  %1:f32[4, 2] = input input.1
  %2:f32[3, 2] = parameter table
  %3:f32[4, 2] = embedding(%0, %2, padding_idx=-1)
  %4:i64[4], %5:f32[4, 2] = group_rows(%1, %0, padding_idx=1, rows=3)
  %6:f32[4, 2] = div(%5, 4.0)
  %7:bool[] = any_non_finite(%6)
  %8:f32[4, 2] = unscale_gradient(%6, scale=8.0)
  %9:f32[3, 2] = sparse_sgd_update(%2, %8, None, %4, fresh=[False], lr=0.5, momentum=0.0, dampening=0.0, \
nesterov=False, weight_decay=0.0, maximize=False) unless %7
  write table <- %9
  return %3, %7"""


def test_golden():
    before = hand_written()
    after = assert_unchanged(before, lambda program: run(program, {"table"}))
    assert str(after) == GOLDEN
    assert_same_results(before, after)


def test_several_lookups_are_joined():
    before = hand_written(lookups=3)
    after = run(before, {"table"})
    names = [i.op.function_name for i in after.instructions]
    assert names.count("group_rows") == 4 and names.count("cat") == 2 and "embedding_grad" not in names
    assert_same_results(before, after)


def test_without_sparse_parameters_nothing_happens():
    program = hand_written()
    assert run(program, frozenset()) is program and run(program, {"other"}) is program


# whole training steps


class Words(nn.Module):
    """A table with a padding row, looked up once or twice, in front of a linear layer."""

    def __init__(self, twice=False, tied=False):
        super().__init__()
        self.table, self.fc = nn.Embedding(ROWS, 6, padding_idx=3), nn.Linear(6, 4)
        self.twice, self.tied = twice, tied

    def forward(self, i):
        x = self.table(i).mean(1)
        if self.twice:
            x = x + self.table(i[:, :2] // 2).sum(1)
        return x @ self.table.weight[:4].T if self.tied else self.fc(x)


def training(make_optimizer, twice=False, device="cpu", **options):
    flow.manual_seed(2)
    model = Words(twice, **options).to(device)
    return Training(model, nn.MSELoss(), make_optimizer(model.parameters()))


def arrays(step):
    return [indices(12, 5, seed=step), numbers(12, 4, seed=step)]


EQUAL = {
    "sgd": lambda ps: flow.optim.SGD(ps, lr=0.1),
    "maximize": lambda ps: flow.optim.SGD(ps, lr=0.1, maximize=True),
    "adagrad": lambda ps: flow.optim.Adagrad(ps, lr=0.1, lr_decay=0.01),
}
LAZY = {
    "momentum": lambda ps: flow.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adam": lambda ps: flow.optim.Adam(ps, lr=0.1),
    "amsgrad": lambda ps: flow.optim.AdamW(ps, lr=0.1, weight_decay=0.0, amsgrad=True),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("optimizer", EQUAL)
def test_it_equals_the_dense_update(optimizer, twice, device):
    sparse, eager = (training(EQUAL[optimizer], twice, device) for _ in range(2))
    before = sparse.record(*arrays(0))
    program = run(before, TABLE)
    assert "embedding_grad" not in [i.op.function_name for i in program.instructions]
    program.check()
    check = assert_same if device == "cpu" else assert_close
    for step in range(3):
        for y, want in zip(sparse.replay(program, *arrays(step)), eager.eager(arrays(step)), strict=True):
            check(y, want)
        for name, value in sparse.values().items():
            check(value, eager.values()[name], what=name)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("optimizer", LAZY)
@pytest.mark.filterwarnings("ignore:.*momentum moves a row")
def test_rows_that_are_not_looked_up_keep_their_states(optimizer, device):
    """The reference: a dense step, of which rows that were not looked up are put back."""
    sparse, eager = (training(LAZY[optimizer], device=device) for _ in range(2))
    program = run(sparse.record(*arrays(0)), TABLE)
    check = assert_same if device == "cpu" else assert_close
    for step in range(4):
        before = eager.values()
        eager.eager(arrays(step))
        others = np.setdiff1d(np.arange(ROWS), arrays(step)[0])
        others = np.union1d(others, [3])  # the padding row has no gradient
        for name, _, tensor in eager._states():
            if name.startswith("model.table"):
                tensor.data[flow.tensor(others, device=device)] = flow.tensor(before[name][others], device=device)
        sparse.replay(program, *arrays(step))
        for name, value in sparse.values().items():
            check(value, eager.values()[name], what=name)


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_with_accumulation(twice):
    sparse, eager = (training(EQUAL["sgd"], twice) for _ in range(2))
    recorded = accumulation.run(sparse.record(*micro_batches(arrays(0), 3)[0]), 3)
    program = run(recorded, TABLE)
    assert "embedding_grad" not in [i.op.function_name for i in program.instructions]
    for step in range(2):
        sparse.replay(program, *arrays(step))
        eager.eager(*micro_batches(arrays(step), 3))
        for name, value in sparse.values().items():
            assert_same(value, eager.values()[name], what=name)


REFUSED = {
    "decay": ({}, lambda ps: flow.optim.SGD(ps, lr=0.1, weight_decay=0.5),
              "model.table.weight is updated as a whole: weight_decay=0.5 changes every row"),
    "adamw": ({}, lambda ps: flow.optim.AdamW(ps, lr=0.1, weight_decay=0.5), "weight_decay=0.5 changes every row"),
    "rmsprop": ({}, lambda ps: flow.optim.RMSprop(ps, lr=0.1), "rmsprop_update has no sparse form; use SGD, Adam"),
    "tied": ({"tied": True}, EQUAL["sgd"], "gradient comes from .*, not only from looking up rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_all_rows_is_updated_densely_with_a_warning(case):
    options, make_optimizer, message = REFUSED[case]
    step = training(make_optimizer, **options)
    before = step.record(*arrays(0))
    with pytest.warns(UserWarning, match=message):
        after = run(before, TABLE)
    assert after is before


def test_a_linear_layer_in_a_sparse_optimizer_is_named():
    step = training(EQUAL["sgd"])
    before = step.record(*arrays(0))
    with pytest.warns(UserWarning, match="model.fc.weight is updated as a whole: its gradient comes from matmul"):
        after = run(before, {"model.fc.weight", *TABLE})
    assert "sparse_sgd_update" in [i.op.function_name for i in after.instructions]


def test_momentum_is_said_to_be_lazy_and_plain_sgd_says_nothing():
    with pytest.warns(UserWarning, match="model.table.weight: momentum moves a row only in steps that look it up"):
        run(training(LAZY["momentum"]).record(*arrays(0)), TABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in (EQUAL["sgd"], LAZY["adam"]):
            after = run(training(make).record(*arrays(0)), TABLE)
            assert "group_rows" in [i.op.function_name for i in after.instructions]


@pytest.mark.parametrize("message", ["mul reads its whole gradient", "its gradient is returned, or kept"])
def test_a_gradient_that_others_read_stays_dense(message):
    b = ProgramBuilder()
    i, dy, table = b.input(4, dtype="int64"), b.input(4, 2), b.parameter(3, 2, name="table")
    b.phase = BACKWARD
    gradient = b(EmbeddingGrad, dy, i, rows=3, padding_idx=-1)
    b.phase = UPDATE
    b.write(table, b(SgdUpdate, table, gradient, None, fresh=[False], **SGD))
    program = b.build(b(Mul, gradient, 2.0) if "mul" in message else gradient)
    with pytest.warns(UserWarning, match=message):
        after = run(program, {"table"})
    assert after is program


def test_nothing_as_large_as_the_table_is_made():
    step = training(LAZY["adam"])
    program = run(step.record(*arrays(0)), TABLE)
    table = next(slot for slot in program.states if slot.name in TABLE)
    made = [slot for i in program.instructions if not i.op.mutates for slot in i.outputs]
    assert made and all(slot.shape != table.shape for slot in made)
