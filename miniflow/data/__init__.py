"""The digits that come with miniflow, as a file; what reads them, and the loader, are in `flow.utils.data`."""

from miniflow.utils.data import mnist, read_idx

__all__ = ["mnist", "read_idx"]
