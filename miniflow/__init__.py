"""miniflow: OneFlow's ideas in a codebase that one person can read. `import miniflow as flow`."""

import miniflow.backends.runtime_defaults  # noqa: F401  (sets how threads wait: before NumPy is loaded)

# isort: split
import importlib
import os
import sys
import types
from math import e, inf, nan, pi

if os.path.isfile(os.path.join(__path__[0], "kernels")):  # the text of the link
    raise ImportError(
        "miniflow/kernels is a link to ../kernels, which git could not make here: in the clone run "
        "`git config core.symlinks true` and `git checkout miniflow/kernels`, or put a copy of the folder in its place"
    )


from miniflow import amp, autograd, cuda, data, linalg, nn, optim, parallel, sbp, show, special, typing, utils
from miniflow.amp import autocast, get_autocast_dtype, is_autocast_enabled
from miniflow.autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from miniflow.autograd import enable_grad as grad_enable
from miniflow.autograd.methods import attach as _attach
from miniflow.autograd.methods import to
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
from miniflow.ops.arithmetic import rsub
from miniflow.ops.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    scalar_tensor,
    tensor,
    zeros,
    zeros_like,
)
from miniflow.ops.detection import nms, roi_align
from miniflow.ops.diagonal import tril_indices, triu_indices
from miniflow.ops.distance import cdist, cosine_similarity, pairwise_distance, pdist
from miniflow.ops.dropout import dropout
from miniflow.ops.einsum import einsum, kron, tensordot
from miniflow.ops.embedding import one_hot
from miniflow.ops.gather_nd import (
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
from miniflow.ops.joining import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    cartesian_prod,
    cat,
    column_stack,
    concat,
    concatenate,
    dstack,
    hstack,
    meshgrid,
    row_stack,
    split,
    stack,
    vstack,
)
from miniflow.ops.matmul import linear
from miniflow.ops.matrix_methods import chain_matmul
from miniflow.ops.method import functions as _functions
from miniflow.ops.normalization import rms_norm
from miniflow.ops.padding import pad
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from miniflow.ops.printing import set_printoptions
from miniflow.ops.promotion import cast, result_type
from miniflow.ops.random import normal, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from miniflow.ops.scans import trapezoid, trapz
from miniflow.ops.shape import broadcast_shapes, broadcast_tensors
from miniflow.ops.sorting import bucketize, isin, searchsorted
from miniflow.ops.special_functions import polygamma
from miniflow.ops.statistics import std_mean, var_mean
from miniflow.ops.tensor_buffer import (
    gen_tensor_buffer,
    tensor_buffer_to_list_of_tensors,
    tensor_buffer_to_tensor,
    tensor_buffer_to_tensor_list,
    tensor_list_to_tensor_buffer,
    tensor_to_tensor_buffer,
)
from miniflow.ops.tensor_types import TENSOR_TYPES, is_floating_point, is_tensor, numel
from miniflow.ops.tensor_types import tensor_of_class as _tensor_of_class
from miniflow.parallel import collectives as comm
from miniflow.parallel import env
from miniflow.parallel.placement import placement
from miniflow.parallel.tensors import with_placement
from miniflow.serialization.states import load, save
from miniflow.tensor import Size, Tensor
from miniflow.typing import Placeholder


def _defer(package: types.ModuleType, places: dict[str, str]) -> None:
    """Give a package attributes that live elsewhere; each is imported when it is first asked for, so that this import
    stays quick.

    Args:
        package: the module object.
        places: attribute -> "module:name", or "module" for the module itself.

    Source: PEP 562, "Module __getattr__ and __dir__".
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}", name=name, obj=package)
        module, _, attribute = places[name].partition(":")
        value = importlib.import_module(module)
        if attribute:
            value = getattr(value, attribute)
        setattr(package, name, value)
        return value

    package.__getattr__ = find
    package.__dir__ = lambda: sorted({*vars(package), *places})


JOBS = [
    "FunctionConfig", "clear_default_session", "constant_initializer", "get_all_variables", "get_variable",
    "global_function", "load_variables", "ones_initializer", "random_normal_initializer", "random_uniform_initializer",
    "truncated_normal_initializer", "zeros_initializer",
]  # fmt: skip
layers_above = {"Graph": "miniflow.graph:Graph", "graph": "miniflow.graph", "parallel": "miniflow.nn.parallel"}
layers_above["AllReduce"] = "miniflow.nn.parallel.all_reduce:AllReduce"
_defer(nn, layers_above | {"SyncBatchNorm": "miniflow.nn.parallel.sync_batch_norm:SyncBatchNorm"})
_defer(parallel.boxing, {"explain": "miniflow.parallel.explain:explain_boxing"})
_defer(autograd, {"functional": "miniflow.func.functional"})
_defer(cuda, {name: f"miniflow.backends.cuda.streams:{name}" for name in ("Event", "Stream", "stream")})
_defer(sbp, {"explain": "miniflow.parallel.explain:explain_signatures"})
_defer(utils, {name: f"miniflow.utils.{name}" for name in ("global_view", "vision")})
_defer(
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
        "profiler": "miniflow.profiler",
        "vision": "miniflow.vision",
        "vmap": "miniflow.func:vmap",
    },
)

__version__ = "0.1.0"
_attach()
globals().update(_functions() | OPERATORS)  # what `@method` and `@pointwise` have registered
globals().update({f"{name}_": getattr(Tensor, f"{name}_") for name, f in OPERATORS.items() if f.op.in_place})
globals().update(TENSOR_TYPES)
FACTORIES = """
arange bernoulli empty empty_like eye full full_like linspace logspace normal ones ones_like rand rand_like randint
randint_like randn randn_like randperm tensor zeros zeros_like
"""
globals().update({name: with_placement(globals()[name]) for name in FACTORIES.split()})  # placement= and sbp= too
framework = types.SimpleNamespace(distribute=env)  # OneFlow 0.6 has `get_rank` there
Tensor._of_data = staticmethod(with_placement(_tensor_of_class))
half, float, double = float16, float32, float64  # the names of dtypes in older code
char, short, int, long = int8, int16, int32, int64
