"""Mixed precision: ops in float16 or bfloat16 where that is fast, in float32 where it matters, and loss scaling."""

from miniflow.amp.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from miniflow.amp.grad_scaler import GradScaler, StaticGradScaler

__all__ = ["GradScaler", "StaticGradScaler", "autocast", "get_autocast_dtype", "is_autocast_enabled"]
