"""Training on several ranks. As `torch.nn.parallel` and `oneflow.nn.parallel`."""

from miniflow.nn.parallel.distributed import DistributedDataParallel
