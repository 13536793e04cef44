"""Training on several ranks. As `torch.nn.parallel` and `oneflow.nn.parallel`."""

from miniflow.parallel.data_parallel import DistributedDataParallel as DistributedDataParallel
