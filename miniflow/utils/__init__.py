"""`flow.utils.data`, where OneFlow and PyTorch users look for it."""

from miniflow.utils import data

__all__ = ["data"]
