"""Networks: modules with parameters, the layers, and how they are initialised."""

from miniflow.nn import functional, init, utils
from miniflow.nn.modules.activation import (
    GLU,
    POINTWISE,
    LogSoftmax,
    PReLU,
    RReLU,
    Softmax,
    Softmax2d,
    Softmin,
)
from miniflow.nn.modules.attention import MultiheadAttention
from miniflow.nn.modules.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from miniflow.nn.modules.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from miniflow.nn.modules.distance import Bilinear, CosineSimilarity, PairwiseDistance
from miniflow.nn.modules.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
from miniflow.nn.modules.embedding import Embedding
from miniflow.nn.modules.linear import Identity, Linear
from miniflow.nn.modules.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CombinedMarginLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    CTCLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    FusedBatchNorm1d,
    FusedBatchNorm2d,
    FusedBatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LocalResponseNorm,
    RMSNorm,
)
from miniflow.nn.modules.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from miniflow.nn.modules.quantization import (
    FakeQuantization,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    Quantization,
)
from miniflow.nn.modules.resize import (
    ChannelShuffle,
    Fold,
    PixelShuffle,
    PixelUnshuffle,
    Unfold,
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
)
from miniflow.nn.modules.rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from miniflow.nn.modules.shape import PADDINGS, Flatten, Unflatten
from miniflow.nn.modules.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from miniflow.nn.parameter import Parameter

globals().update(POINTWISE | PADDINGS)
__all__ = [name for name in globals() if not name.startswith("_") and name not in ("POINTWISE", "PADDINGS", "miniflow")]
