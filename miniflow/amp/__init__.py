"""Mixed precision: ops in float16 or bfloat16 where that is fast, in float32 where it matters, and loss scaling.

Each op's definition names its class, `Op.amp`, as OneFlow's AutoMixedPrecision pass lists them:

    white       in half precision always: the matrix products, which GPUs compute many times faster
    gray        in half precision if their neighbours are: pointwise arithmetic, normalizations, softmax. Their kernels
                compute in float32 and round once, but their results must tolerate the rounding
    clear       the same, and always safe: they only move or select elements
    black       in float32 always, and the gray and clear ops that lead to them too: losses
    untouched   casts

All others are computed in float32 (exp, log, mean, sums of squares ...), but do not force their neighbours.

In OneFlow the cross-entropy and nll losses are gray. Here all losses are black: the gradient of a loss that is scaled
by 65536 leaves the range of float16. Sums into large tables of parameters, as the gradient of an embedding, are
float32.
"""

from miniflow.amp.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from miniflow.amp.grad_scaler import GradScaler, StaticGradScaler

__all__ = ["GradScaler", "StaticGradScaler", "autocast", "get_autocast_dtype", "is_autocast_enabled"]
