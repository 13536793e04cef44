"""The functions that layers call: the same function objects as in `miniflow.ops`, under PyTorch's names."""

from miniflow.names import functions as _functions
from miniflow.ops.pointwise import OPERATORS
from miniflow.tensor import Tensor

globals().update(
    _functions(
        "conv_transpose ctc_loss dropout embedding fold grid_sample group_norm pool pool_1d_3d regression_loss softmax",
        activation="glu prelu rrelu",
        attention="scaled_dot_product_attention",
        conv="conv2d",
        conv_1d_3d="conv1d conv3d",
        distance="bilinear cosine_similarity normalize pairwise_distance pdist",
        interpolate="interpolate upsample",
        loss="binary_cross_entropy binary_cross_entropy_with_logits cross_entropy l1_loss mse_loss nll_loss "
        "sparse_softmax_cross_entropy",
        margin_loss="cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss "
        "multilabel_soft_margin_loss soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss",
        matmul="linear",
        norm="batch_norm layer_norm",
        pad="one_hot pad",
        sampling="gumbel_softmax",
    )
)
globals().update({name: function for name, function in OPERATORS.items() if function.op.nn})
for _name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_", "threshold_"):
    globals()[_name] = getattr(Tensor, _name)
