"""The functions that layers call: the same function objects as in `miniflow.ops`, under PyTorch's names."""

from miniflow.autograd.methods import in_place as _in_place
from miniflow.ops.activation import glu, prelu, rrelu
from miniflow.ops.attention import scaled_dot_product_attention
from miniflow.ops.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    fold,
    unfold,
)
from miniflow.ops.ctc_loss import ctc_greedy_decoder, ctc_loss
from miniflow.ops.distance import bilinear, cosine_similarity, pairwise_distance, pdist
from miniflow.ops.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from miniflow.ops.embedding import embedding, embedding_bag, one_hot
from miniflow.ops.grid_sample import affine_grid, grid_sample
from miniflow.ops.likelihood_losses import gaussian_nll_loss, poisson_nll_loss
from miniflow.ops.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
    sparse_softmax_cross_entropy,
)
from miniflow.ops.margin_losses import (
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
from miniflow.ops.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from miniflow.ops.padding import pad
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from miniflow.ops.softmax import gumbel_softmax, log_softmax, softmax, softmin
from miniflow.ops.vision import channel_shuffle, interpolate, pixel_shuffle, pixel_unshuffle, upsample
from miniflow.tensor import Tensor

globals().update({name: function for name, function in OPERATORS.items() if function.op.nn})
for _name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_", "threshold_"):
    globals()[_name] = _in_place(OPERATORS[_name[:-1]])
