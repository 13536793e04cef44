"""The sum over all ranks as a layer."""

from __future__ import annotations

import re
from typing import Any

from miniflow.autograd.function import Function
from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.parallel import world
from miniflow.parallel.collectives import all_reduce
from miniflow.parallel.group import ProcessGroup, new_group
from miniflow.tensor import Tensor


class AllReduceSum(Function):
    """The sum of the tensors of all ranks; each rank's loss depends on it, so backward sums the gradients too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup | None) -> Tensor:
        y = x.clone()
        ctx.group = group
        all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return AllReduceSum.apply(dy, ctx.group), None


class AllReduce(Module):
    """The sum of the local tensors of all ranks, on each of them; its gradient is the sum of their gradients.

    Args:
        parallel_conf_str: which ranks, as machines and the numbers of their ranks, such as `device_name: "0:0-3"`;
            None for all.

    Raises:
        ArgumentError: if it names no ranks, or some that do not exist.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(4)
    >>> AllReduce('device_tag: "cpu" device_name: "0:0-2"')(flow.ones(2))
    tensor([3., 3.], dtype=miniflow.float32)
    >>> flow.parallel.simulate(1)

    Source: `oneflow.nn.AllReduce`.
    """

    def __init__(self, parallel_conf_str: str | None = None):
        super().__init__()
        self.group = None
        if parallel_conf_str is not None:
            matches = re.findall(r"(\d+):(?:[a-z]+:)?(\d+)(?:-(\d+))?", parallel_conf_str)
            if not matches:
                expected = "machines and their ranks, as in 'device_name: \"0:0-3\"'"
                raise ArgumentError(f"AllReduce: got parallel_conf_str={parallel_conf_str!r}; expected {expected}")
            numbers = [(int(machine), range(int(first), int(last or first) + 1)) for machine, first, last in matches]
            self.group = new_group([m * world.ranks_of_a_machine() + i for m, several in numbers for i in several])

    def forward(self, x: Tensor) -> Tensor:
        return AllReduceSum.apply(x, self.group)
