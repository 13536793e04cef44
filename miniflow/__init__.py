"""miniflow: OneFlow's ideas in a codebase that one person can read. `import miniflow as flow`."""

import miniflow.process  # noqa: F401  (sets how threads wait: before NumPy is loaded)

# isort: split
import sys
from math import e, inf, nan, pi
from types import SimpleNamespace

import miniflow.methods  # noqa: F401  (attaches the operations to Tensor)
from miniflow import amp, autograd, cuda, data, linalg, nn, optim, parallel, sbp, show, special, typing, utils, vision
from miniflow.amp import autocast, get_autocast_dtype, is_autocast_enabled
from miniflow.autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from miniflow.autograd import enable_grad as grad_enable
from miniflow.deferred import defer
from miniflow.device import device, get_default_device, set_default_device
from miniflow.dtype import (
    bfloat16,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    tensor_buffer,
    uint8,
)
from miniflow.dtype import bool_ as bool
from miniflow.methods import to
from miniflow.ops.arrange import (
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    diag,
    diag_embed,
    diagflat,
    fliplr,
    flipud,
    meshgrid,
    ravel,
    repeat_interleave,
    roll,
    rot90,
    trace,
    tril,
    triu,
)
from miniflow.ops.comparison import allclose, equal, isclose
from miniflow.ops.creation import (
    as_tensor,
    empty,
    empty_like,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    ones,
    ones_like,
    scalar_tensor,
    tensor,
    zeros,
    zeros_like,
)
from miniflow.ops.creation import tensor_of_class as _tensor_of_class
from miniflow.ops.detection import nms, roi_align
from miniflow.ops.distance import cdist, cosine_similarity, dist, pairwise_distance, pdist, renorm
from miniflow.ops.dropout import dropout
from miniflow.ops.einsum import einsum, kron, tensordot
from miniflow.ops.elementwise import float_power, positive, rsub
from miniflow.ops.extremum import amax, amin, aminmax, argmax, argmin, max, min
from miniflow.ops.gamma import mvlgamma, polygamma
from miniflow.ops.gather import gather, index_add, index_select, scatter_add, take_along_dim
from miniflow.ops.gather_nd import (
    as_strided,
    batch_gather,
    broadcast_like,
    gather_nd,
    in_top_k,
    logical_slice_assign,
    scatter_nd,
    slice,
    slice_update,
    tensor_scatter_nd_update,
)
from miniflow.ops.gather_nd import slice as logical_slice
from miniflow.ops.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from miniflow.ops.group_norm import rms_norm
from miniflow.ops.join import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    cat,
    chunk,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    hsplit,
    hstack,
    row_stack,
    split,
    split_with_sizes,
    stack,
    tensor_split,
    unbind,
    vsplit,
    vstack,
)
from miniflow.ops.linalg import logdet
from miniflow.ops.matmul import addbmm, addmm, addmv, addr, baddbmm, bmm, dot, inner, linear, matmul, mm, mv, outer
from miniflow.ops.matmul import dot as vdot
from miniflow.ops.matmul import outer as ger
from miniflow.ops.matrix_methods import chain_matmul, cross, det, inverse, matrix_exp, matrix_power, pinverse, slogdet
from miniflow.ops.pad import one_hot, pad, repeat, tile
from miniflow.ops.permute import flip, moveaxis, movedim, permute, swapaxes, swapdims, t, transpose
from miniflow.ops.piecewise import clamp_max, clamp_min
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from miniflow.ops.promotion import cast, result_type
from miniflow.ops.random import normal, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from miniflow.ops.reduce import all, any, mean, prod, sum
from miniflow.ops.sampling import bernoulli, multinomial
from miniflow.ops.scan import cummax, cummin, cumprod, cumsum, diff, logcumsumexp, trapezoid, trapz
from miniflow.ops.scatter import (
    diagonal_scatter,
    index_copy,
    index_fill,
    index_put,
    index_reduce,
    masked_scatter,
    put,
    scatter,
    scatter_reduce,
    select_scatter,
    slice_scatter,
    take,
)
from miniflow.ops.search import (
    argwhere,
    bincount,
    bucketize,
    count_nonzero,
    histc,
    isin,
    masked_fill,
    masked_select,
    nonzero,
    searchsorted,
    unique,
    unique_consecutive,
)
from miniflow.ops.sequence import arange, eye, linspace, logspace, tril_indices, triu_indices
from miniflow.ops.shape import broadcast_to, clone, expand, flatten, reshape, squeeze, unflatten, unsqueeze, view
from miniflow.ops.slice import diagonal, narrow, select
from miniflow.ops.softmax import log_softmax, softmax
from miniflow.ops.sort import argsort, kthvalue, median, mode, msort, nanmedian, nanquantile, quantile, sort, topk
from miniflow.ops.statistics import logsumexp, nanmean, nansum, norm, std, std_mean, var, var_mean
from miniflow.ops.tensor_buffer import (
    gen_tensor_buffer,
    tensor_buffer_to_list_of_tensors,
    tensor_buffer_to_tensor,
    tensor_buffer_to_tensor_list,
    tensor_list_to_tensor_buffer,
    tensor_to_tensor_buffer,
)
from miniflow.ops.tensor_types import TENSOR_TYPES, is_floating_point, is_nonzero, is_tensor, numel
from miniflow.parallel import collectives as comm
from miniflow.parallel import env
from miniflow.parallel.placement import placement
from miniflow.parallel.tensors import with_placement
from miniflow.printing import set_printoptions
from miniflow.serialization import load, save
from miniflow.tensor import Size, Tensor
from miniflow.typing import Placeholder

JOBS = [
    "FunctionConfig", "clear_default_session", "constant_initializer", "get_all_variables", "get_variable",
    "global_function", "load_variables", "ones_initializer", "random_normal_initializer", "random_uniform_initializer",
    "truncated_normal_initializer", "zeros_initializer",
]  # fmt: skip
layers_above = {"Graph": "miniflow.graph:Graph", "graph": "miniflow.graph", "parallel": "miniflow.nn.parallel"}
defer(nn, layers_above | {"SyncBatchNorm": "miniflow.nn.parallel.sync_batch_norm:SyncBatchNorm"})
defer(parallel.boxing, {"explain": "miniflow.parallel.explain:explain_boxing"})
defer(autograd, {"functional": "miniflow.func.functional"})
defer(sbp, {"explain": "miniflow.parallel.explain:explain_signatures"})
defer(utils, {"global_view": "miniflow.utils.global_view"})
defer(
    sys.modules[__name__],
    {
        **{name: f"miniflow.graph.job:{name}" for name in JOBS},
        "function_config": "miniflow.graph.job:FunctionConfig",
        "boxing": "miniflow.parallel.boxing",
        "distributed": "miniflow.distributed",
        "distributions": "miniflow.distributions",
        "func": "miniflow.func",
        "graph": "miniflow.graph",
        "mock_torch": "miniflow.mock_torch",
        "onnx": "miniflow.onnx",
        "optimizer": "miniflow.graph.job_optimizer",
        "vmap": "miniflow.func:vmap",
    },
)

__version__ = "0.1.0"
globals().update(OPERATORS)  # the pointwise operators, under all of their names
globals().update({f"{name}_": getattr(Tensor, f"{name}_") for name, f in OPERATORS.items() if f.op.in_place})
globals().update(TENSOR_TYPES)
FACTORIES = "arange empty eye full linspace logspace ones rand randint randn randperm tensor zeros"
globals().update({name: with_placement(globals()[name]) for name in FACTORIES.split()})  # placement= and sbp= too
framework = SimpleNamespace(distribute=env)  # OneFlow 0.6 has `get_rank` there
Tensor._of_data = staticmethod(with_placement(_tensor_of_class))
half, float, double = float16, float32, float64  # the names of dtypes in older code
char, short, int, long = int8, int16, int32, int64
