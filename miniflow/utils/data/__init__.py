"""Data sets, samplers and the DataLoader. As `torch.utils.data` and `oneflow.utils.data`."""

from miniflow.utils.data.collate import default_collate, default_convert
from miniflow.utils.data.dataloader import DataLoader
from miniflow.utils.data.dataset import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split
from miniflow.utils.data.distributed import DistributedSampler
from miniflow.utils.data.idx import read_idx
from miniflow.utils.data.mnist import mnist
from miniflow.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from miniflow.utils.data.workers import WorkerInfo, get_worker_info
