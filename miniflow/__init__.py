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
from miniflow.deferred import defer
from miniflow.device import device, get_default_device, set_default_device
from miniflow.dtype import ALL as _DTYPES
from miniflow.dtype import dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from miniflow.names import functions as _functions
from miniflow.ops.creation import tensor_of_class as _tensor_of_class
from miniflow.ops.generator import Generator, default_generator
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.tensor_types import TENSOR_TYPES
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
        "graph": "miniflow.graph",
        "mock_torch": "miniflow.mock_torch",
        "onnx": "miniflow.onnx",
        "optimizer": "miniflow.optimizer",
    },
)

__version__ = "0.1.0"
globals().update(
    _functions(
        "arrange closeness detection einsum gather_nd join mask queries scatter search sequence triangle",
        creation="as_tensor empty empty_like from_dlpack from_numpy full full_like ones ones_like tensor zeros "
        "zeros_like",
        distance="cdist cosine_similarity pairwise_distance pdist",
        dropout="dropout",
        elementwise="float_power",
        extremum="amax amin aminmax argmax argmin max min",
        gather="gather index_add index_select scatter_add take_along_dim",
        generator="get_rng_state initial_seed manual_seed seed set_rng_state",
        group_norm="rms_norm",
        linalg="logdet",
        matmul="addbmm addmm addmv addr baddbmm bmm dot inner linear matmul mm mv outer",
        matrix_methods="chain_matmul cross det inverse matrix_exp matrix_power pinverse slogdet",
        pad="one_hot pad repeat tile",
        permute="flip moveaxis movedim permute swapaxes swapdims t transpose",
        promotion="cast result_type",
        random="normal rand rand_like randint randint_like randn randn_like randperm",
        reduce="all any mean prod sum",
        sampling="bernoulli multinomial",
        scan="cummax cummin cumprod cumsum diff logcumsumexp trapezoid trapz",
        shape="broadcast_to clone expand flatten reshape squeeze unflatten unsqueeze",
        slice="diagonal narrow select",
        softmax="log_softmax softmax",
        sort="argsort kthvalue median mode msort nanmedian nanquantile quantile sort topk",
        statistics="logsumexp nanmean nansum norm std std_mean var var_mean",
    )
)
vdot, ger = globals()["dot"], globals()["outer"]
globals().update(OPERATORS)  # the pointwise operators, under all of their names
globals().update({f"{name}_": getattr(Tensor, f"{name}_") for name, f in OPERATORS.items() if f.op.in_place})
globals().update(TENSOR_TYPES)
FACTORIES = "arange empty eye full linspace logspace ones rand randint randn randperm tensor zeros"
globals().update({name: with_placement(globals()[name]) for name in FACTORIES.split()})  # placement= and sbp= too
framework = SimpleNamespace(distribute=env)  # OneFlow 0.6 has `get_rank` there
Tensor._of_data = staticmethod(with_placement(_tensor_of_class))
_ALIASES = {  # in older code
    "half": "float16", "float": "float32", "double": "float64", "char": "int8", "short": "int16", "int": "int32",
    "long": "int64",
}  # fmt: skip
globals().update({kind.name: kind for kind in _DTYPES})
globals().update({alias: globals()[name] for alias, name in _ALIASES.items()})
