"""Pictures with matplotlib, which is only imported when one is drawn."""

from miniflow.show.graph import tape
from miniflow.show.training import confusion, losses

__all__ = ["confusion", "losses", "tape"]
