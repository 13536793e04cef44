"""What is watched while a classifier trains."""

from __future__ import annotations

from collections.abc import Sequence

from miniflow.errors import ArgumentError, refusal
from miniflow.tensor import Tensor


class AverageMeter:
    """The last value, and the mean of all.

    Attributes:
        val, avg, sum, count: the last value, the mean, the sum, and how many there were.

    >>> meter = AverageMeter()
    >>> meter.update(1.0), meter.update(4.0, n=2)
    (None, None)
    >>> meter.avg
    3.0

    Source: timm's `AverageMeter`.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val: float, n: int = 1) -> None:
        """Take in a value that is the mean of `n`."""
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n
        self.avg = self.sum / self.count if self.count else 0


def accuracy(output: Tensor, target: Tensor, topk: Sequence[int] = (1,)) -> list[Tensor]:
    """How often the label is among the k largest logits, in percent, for each k.

    Args:
        output: logits (N, classes).
        target: class indices (N,).
        topk: the values of k; one above the number of classes counts as that number.

    Returns:
        a tensor with one number for each k.

    Raises:
        ArgumentError: for other shapes, no labels, or a k below 1.

    >>> import miniflow as flow
    >>> top1, top2 = accuracy(flow.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), flow.tensor([0, 1]), topk=(1, 2))
    >>> top1.item(), top2.item()
    (50.0, 100.0)

    Source: timm's `accuracy`.
    """
    if not len(target) or output.ndim != 2 or target.shape != output.shape[:1] or min(topk) < 1:
        expected = "logits (N, classes), N labels, at least one, and each k at least 1"
        raise refusal(ArgumentError, "accuracy", expected, output=output, target=target, topk=topk)
    largest = output.topk(min(max(topk), output.shape[1]), dim=1)[1]  # (N, k), the largest first
    correct = (largest == target.reshape(-1, 1)).float()
    return [correct[:, :k].sum() * (100.0 / len(target)) for k in topk]
