"""Which ops mixed precision runs in half precision: the lists of OneFlow's AutoMixedPrecision pass, for our ops.

    WHITE   in half precision always: the matrix products, which GPUs compute many times faster
    GRAY    in half precision if their neighbours are: pointwise arithmetic, normalizations, softmax. Their kernels
            compute in float32 and round once, but their results must bear the rounding
    CLEAR   the same, and their results bear everything: they only move or choose elements
    BLACK   in float32 always, and the gray and clear ops that lead to them too: losses

All others are computed in float32 (exp, log, mean, sums of squares ...), but do not force their neighbours.

OneFlow has the cross-entropy and nll losses gray. Here all losses are black: the gradient of a loss that is scaled by
65536 leaves the range of float16. Sums into large tables of parameters, as the gradient of an embedding, are float32.
"""

from __future__ import annotations

from miniflow.dispatch import Op
from miniflow.inplace import ViewScatter
from miniflow.ops.amp_identity import AmpBlackIdentity
from miniflow.ops.conv import Conv2d, Conv2dDataGrad, Conv2dWeightGrad
from miniflow.ops.dropout import Dropout, DropoutGrad
from miniflow.ops.elementwise import Add, Div, Mul, Sub, Where, maximum, minimum
from miniflow.ops.embedding import Embedding
from miniflow.ops.extremum import Amax, Amin, MaxDim, MinDim
from miniflow.ops.gather import Gather, IndexSelect, Scatter
from miniflow.ops.index import Index, SetItem
from miniflow.ops.join import Cat, Stack
from miniflow.ops.loss import BinaryCrossEntropy, CrossEntropy, CrossEntropyGrad, NllLoss, TargetWeights
from miniflow.ops.mask import MaskedFill
from miniflow.ops.matmul import Linear, Matmul
from miniflow.ops.norm import BatchNorm, BatchNormGrad, BatchNormInference, LayerNorm, LayerNormGrad
from miniflow.ops.pad import Pad
from miniflow.ops.permute import Flip, Permute, Transpose
from miniflow.ops.pool import (
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dGrad,
    AvgPool2d,
    AvgPool2dGrad,
    MaxPool2d,
    MaxPool2dGather,
    MaxPool2dGrad,
)  # fmt: skip
from miniflow.ops.promotion import Cast, ToDevice
from miniflow.ops.reduce import Sum
from miniflow.ops.shape import Clone, Expand, SumToShape, View
from miniflow.ops.slice import Diagonal, DiagonalIntoZeros, Slice, SliceIntoZeros, Unfold
from miniflow.ops.softmax import LogSoftmax, LogSoftmaxGrad, Softmax, SoftmaxGrad
from miniflow.ops.triangle import Tril, Triu


def of_class(name: str) -> frozenset[type[Op]]:
    """The ops whose definition names this class."""
    return frozenset(op for op in Op.by_name.values() if op.amp == name)


WHITE: frozenset[type[Op]] = frozenset({Matmul, Linear, Conv2d, Conv2dDataGrad, Conv2dWeightGrad})

GRAY: frozenset[type[Op]] = frozenset(
    {
        Sum, SumToShape,
        Softmax, SoftmaxGrad, LogSoftmax, LogSoftmaxGrad,
        LayerNorm, LayerNormGrad, BatchNorm, BatchNormInference, BatchNormGrad,
        Dropout, DropoutGrad,
        AvgPool2d, AvgPool2dGrad, AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad,
    }
) | of_class("gray")  # fmt: skip

CLEAR: frozenset[type[Op]] = frozenset(
    {
        View, Transpose, Permute, Expand, Slice, Diagonal, Unfold, SliceIntoZeros, DiagonalIntoZeros,
        Clone, Flip, Pad, Cat, Stack, Tril, Triu,
        ViewScatter, SetItem, Scatter,
        Embedding, Gather, Index, IndexSelect,
        MaskedFill,
        MaxPool2d, MaxPool2dGrad, MaxPool2dGather, Amax, Amin, MaxDim, MinDim,
    }
) | of_class("clear")  # fmt: skip

BLACK: frozenset[type[Op]] = frozenset(
    {AmpBlackIdentity, CrossEntropy, CrossEntropyGrad, NllLoss, TargetWeights, BinaryCrossEntropy}
)

# what they compute from half precision and float32 is float32, in eager mode and in a graph
PROMOTING: frozenset[type[Op]] = frozenset({Add, Sub, Mul, Div, maximum.op, minimum.op, Where, Cat, Stack})

# they write into their first input, and compute in its dtype
INTO_FIRST: frozenset[type[Op]] = frozenset({ViewScatter, SetItem, Scatter})

UNTOUCHED: frozenset[type[Op]] = frozenset({Cast, ToDevice})  # autocast leaves their inputs as they are

# the positions of inputs that stay float32 beside an x in half precision: parameters and running statistics
KEEP_FLOAT32: dict[type[Op], frozenset[int]] = {
    LayerNorm: frozenset({1, 2}),
    LayerNormGrad: frozenset({2}),
    BatchNorm: frozenset({1, 2}),
    BatchNormInference: frozenset({1, 2, 3, 4}),
    BatchNormGrad: frozenset({2, 3, 4}),
}
