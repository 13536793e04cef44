"""Updates of those rows of a table that a step looked up: their cost does not depend on the size of the table.

The gradient of an embedding is zero but for a few rows. `GroupRows` converts it to `rows` and `values`, one
entry for each index; the first index of a row represents all that are equal:

    indices   7  3  7  9         rows     7  3  -1  9
    dy        a  b  c  d         values  a+c b   0  d

The rules then are those of the optimizers on these rows alone. Rows that were not looked up stay as they are, and so do
their states: for SGD and Adagrad that is what the update of the whole table does to rows with a zero gradient, too; for
SGD with momentum and for Adam it is not, and called lazy. Weight decay would change every row: it has no sparse form.

Source: OneFlow's indexed_slices_sgd_update, _momentum_update, _adam_update; `torch.optim.SparseAdam`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.dispatch.dispatcher import Op, update
from miniflow.nn.arguments import AT_LEAST_0, check_pair, check_range
from miniflow.ops.views import check_in_range
from miniflow.optim.adagrad import AdagradUpdate
from miniflow.optim.adam import AdamUpdate
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.sgd import SgdUpdate
from miniflow.tensor import Tensor


class GroupRows(Op):
    """The gradient of an embedding, as rows and values; indices below 0, and those of the padding row, are left out.

    rows[p] = indices[p] if no earlier index is the same, else -1; values[p] = the sum of dy[q] over all q with the same
    index, in the order of q; 0 where rows[p] is -1. `rows` is the number of rows of the table, which bounds the indices
    of a lookup; None for indices that were checked before.
    """

    made_by_passes = True
    outputs = ("rows", "values")
    checks_values = "infer"

    def infer(dy, indices, *, padding_idx, rows):
        if rows is not None:
            check_in_range("embedding", indices, 0, (rows, dy.shape[-1]))
        count = int(np.prod(indices.shape, dtype=np.int64))
        return [((count,), np.dtype(np.int64)), ((count, dy.shape[-1]), dy.dtype)]


class SparseSgdUpdate(SgdUpdate):
    """`SgdUpdate` of those rows of a table that the last group names; the gradients are those of these rows."""

    more = ("rows",)


class SparseAdamUpdate(AdamUpdate):
    """`AdamUpdate` of some rows."""

    more = ("rows",)


class SparseAdagradUpdate(AdagradUpdate):
    """`AdagradUpdate` of some rows."""

    more = ("rows",)


SPARSE_RULES = {SgdUpdate: SparseSgdUpdate, AdamUpdate: SparseAdamUpdate, AdagradUpdate: SparseAdagradUpdate}


class SparseAdam(Optimizer):
    """Adam of those rows of a table whose gradient is not zero; the others, and their states, stay as they are.

    Gradients are dense here. In nn.Graph, which takes no SparseAdam, `add_optimizer(Adam(...), is_sparse=True)` avoids
    them.

    Args:
        params: tensors (rows, columns), or groups of them.
        lr, betas, eps, maximize: as for `Adam`, but eps is added before the bias correction of v.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    Source: `torch.optim.SparseAdam`.
    """

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        check_range(self, AT_LEAST_0, lr=options["lr"], eps=options["eps"])
        check_pair(self, (0, 1), betas=options["betas"])

    def state_names(self, group: dict[str, Any]) -> tuple[str, str]:
        return "exp_avg", "exp_avg_sq"

    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        plain = {"weight_decay": 0.0, "decoupled_weight_decay": False, "amsgrad": False, "do_bias_correction": True}
        for p, grad, *states in zip(params, *self._gradients_and_states(group, params), strict=True):
            rows = grad.ne(0).any(1).nonzero().flatten()
            steps = self.next_values("steps", [p])
            eps = group["eps"] / math.sqrt(1 - group["betas"][1] ** steps[0])
            lists = [p], [grad[rows]], *([state] for state in states), [None], [rows]
            update(SparseAdamUpdate, *lists, **plain, **self.attributes(group) | {"eps": eps, "steps": steps})
        self.count_step(params)
