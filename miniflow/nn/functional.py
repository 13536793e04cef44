"""The functions that layers call: the same function objects as in `miniflow.ops`, under PyTorch's names."""

from miniflow.ops.activation import glu, prelu, rrelu
from miniflow.ops.attention import scaled_dot_product_attention
from miniflow.ops.conv import conv1d, conv2d, conv3d
from miniflow.ops.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from miniflow.ops.ctc_loss import ctc_greedy_decoder, ctc_loss
from miniflow.ops.distance import bilinear, cosine_similarity, l2_normalize, normalize, pairwise_distance, pdist
from miniflow.ops.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from miniflow.ops.embedding import embedding
from miniflow.ops.embedding_bag import embedding_bag
from miniflow.ops.fold import channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, unfold
from miniflow.ops.grid_sample import affine_grid, grid_sample
from miniflow.ops.group_norm import group_norm, instance_norm, local_response_norm, rms_norm
from miniflow.ops.interpolate import interpolate, upsample
from miniflow.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
    sparse_softmax_cross_entropy,
)
from miniflow.ops.margin_loss import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from miniflow.ops.matmul import linear
from miniflow.ops.norm import batch_norm, layer_norm
from miniflow.ops.pad import one_hot, pad
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from miniflow.ops.pool_composed import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from miniflow.ops.regression_loss import gaussian_nll_loss, huber_loss, kl_div, poisson_nll_loss, smooth_l1_loss
from miniflow.ops.sampling import gumbel_softmax
from miniflow.ops.softmax import log_softmax, softmax, softmin
from miniflow.tensor import Tensor

globals().update({name: function for name, function in OPERATORS.items() if function.op.nn})
for _name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_", "threshold_"):
    globals()[_name] = getattr(Tensor, _name)
