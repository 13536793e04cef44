"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.norm import BatchNorm, InstanceNorm
from miniflow.nn.parallel.all_reduce import AllReduceSum
from miniflow.ops.creation import tensor
from miniflow.parallel import world
from miniflow.parallel.collectives import all_reduce
from miniflow.tensor import Tensor


class SyncBatchNorm(BatchNorm):
    """Batch normalization whose mean and variance are those of the batches of all ranks, in training.

    Args and attributes are those of `BatchNorm`. For local tensors, as with DistributedDataParallel: the batch of a
    global tensor is that of all ranks in every layer.

    Source: `torch.nn.SyncBatchNorm`.
    """

    dims = (2, 3, 4, 5)

    def normalize(self, input: Tensor, mean: Any, var: Any, training: bool, momentum: Any) -> Tensor:
        if not training or input.is_global or world.size() == 1:
            return super().normalize(input, mean, var, training, momentum)
        if input._array.dtype.itemsize == 2:  # where sums overflow, and counts are rounded
            return self.normalize(input.float(), mean, var, training, momentum).to(input.dtype)
        dims, shape = [0, *range(2, input.ndim)], (1, -1, *[1] * (input.ndim - 2))
        count = tensor(float(input.numel() // self.num_features), dtype=input.dtype, device=input._device)
        all_reduce(count)
        average = AllReduceSum.apply(input.sum(dims), None) / count
        deviation = input - average.reshape(shape)
        variance = AllReduceSum.apply((deviation * deviation).sum(dims), None) / count
        if mean is not None:
            with no_grad():
                mean.copy_(mean * (1 - momentum) + average * momentum)
                var.copy_(var * (1 - momentum) + variance * (momentum * count / (count - 1)))
        y = deviation * (variance + self.eps).rsqrt().reshape(shape)
        y = y if self.weight is None else y * self.weight.reshape(shape)
        return y if self.bias is None else y + self.bias.reshape(shape)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module) -> Module:
        """A module with its BatchNorm layers replaced by SyncBatchNorm ones of the same parameters and buffers."""
        for name, child in list(module.named_children()):
            setattr(module, name, cls.convert_sync_batchnorm(child))
        if not isinstance(module, BatchNorm) or isinstance(module, InstanceNorm | cls):
            return module
        new = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
        new._parameters.update(module._parameters)
        new._buffers.update(module._buffers)
        return new.train(module.training)
