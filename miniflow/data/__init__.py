"""Ready-made data sets. `flow.utils.data` holds the loader that makes batches of them."""

from miniflow.data.idx import read_idx
from miniflow.data.mnist import mnist

__all__ = ["mnist", "read_idx"]
