"""`flow.utils.data` and `flow.utils.checkpoint`, where OneFlow and PyTorch users look for them."""

from miniflow.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
