"""Pictures with matplotlib, which is only imported when one is drawn."""

from miniflow.show.graph import tape
from miniflow.show.shards import boxing, shards
from miniflow.show.training import confusion, losses

__all__ = ["boxing", "confusion", "losses", "shards", "tape"]
