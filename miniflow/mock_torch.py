"""PyTorch programs on miniflow: what they import from `torch` comes from here instead.

    with flow.mock_torch.enable():
        import torch
        from models import ResNet          # unmodified source that imports torch

    python -m miniflow.mock_torch train.py --epochs 3
    python -m miniflow.distributed.launch --nproc_per_node 2 -m miniflow.mock_torch train_with_ddp.py

While it is enabled, `import torch` and `import torch.nn.functional` give modules that look names up in `miniflow`,
`miniflow.nn.functional` and so on. A name that miniflow lacks can be imported, since many programs import more than
they use; using it raises an AttributeError that names it, and so does making an object of a class derived from it.
`torch.name` raises at once, so that `hasattr` is right. `import torchvision` and `import flowvision` give
`miniflow.vision` where they are not installed; where they are, their own source runs on miniflow.
`torch.utils.tensorboard` is tensorboardX, if that is installed.

Modules that were imported before, torch among them, are set aside, and come back untouched with `disable`. Modules
that were imported meanwhile keep what they imported; they stay in `sys.modules`, except the mock itself.

Source: `oneflow.mock_torch`; PEP 451, "A ModuleSpec Type for the Import System".
"""

from __future__ import annotations

import enum
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NoReturn

import numpy as np

import miniflow
from miniflow.dispatch.tape import modes
from miniflow.nn import functional, init
from miniflow.nn.modules import conv, norm
from miniflow.ops.promotion import device_and_dtype
from miniflow.parallel.comm.counted import ReduceOp

VERSION = "2.2.0"
"""What programs read as `torch.__version__`: the release whose names these are."""


def same(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with and without arguments."""
    return function if callable(function) else same


def never(*args: Any, **kwargs: Any) -> bool:
    """False: nothing is scripted or compiled here."""
    return False


def is_recording() -> bool:
    """Whether a graph is being recorded, or exported to ONNX: programs then leave out what looks at values."""
    return modes.tracer is not None


def device_count() -> int:
    """How many GPUs there are; programs that find emulated ones would use them."""
    return miniflow.cuda.device_count() if miniflow.cuda.is_available() else 0


def nothing(*args: Any, **kwargs: Any) -> None:
    """A setting that changes nothing here."""


def require(condition: Any, message: str) -> None:
    """`torch._assert`."""
    assert condition, message


def parse_to(
    *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> tuple[Any, ...]:
    """`torch._C._nn._parse_to`: what the arguments of a module's `to` say."""
    device, dtype = device_and_dtype(args, device, dtype)
    return None if device is None else miniflow.device(device), dtype, non_blocking, memory_format


class UntypedStorage(np.memmap):
    """The bytes of a file: `safetensors.safe_open` takes slices, and those as tensors of some dtype."""

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes; what is written to them stays in memory, unless they are shared with the file."""
        return cls(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    _untyped = untyped

    def view(self, dtype: miniflow.dtype) -> miniflow.Tensor:
        """The elements of that dtype."""
        return miniflow.from_numpy(np.asarray(self).view(dtype.numpy))


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> miniflow.Tensor | UntypedStorage:
    """`torch.asarray`."""
    if isinstance(obj, UntypedStorage):
        return obj
    x = miniflow.as_tensor(obj, dtype, device).detach()
    x = x.clone() if copy else x
    return x.requires_grad_(requires_grad)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> miniflow.Tensor:
    """`torch.div`, which takes two numbers, too."""
    input = input if isinstance(input, miniflow.Tensor) else miniflow.tensor(input)
    return miniflow.div(input, other, rounding_mode=rounding_mode)


def softmax_backward(dy: miniflow.Tensor, y: miniflow.Tensor, dim: int, dtype: Any) -> miniflow.Tensor:
    """`torch._softmax_backward_data`, the gradient of y = softmax(x)."""
    return (y * (dy - (dy * y).sum(dim, keepdim=True))).to(dtype)


def some_kernels(*args: Any, **kwargs: Any) -> Any:
    """A block in which PyTorch chooses among some kernels of attention; there is one here."""
    return nullcontext()


def ntuple(n: int) -> Callable[[Any], tuple]:
    """What makes a number n equal numbers, and leaves several as they are."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


class Missing(ModuleType):
    """A name that was imported from torch and is not in miniflow. Python takes it for a submodule of its parent."""

    __path__: list[str] = []

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(f"{self.__name__} is not in miniflow", name=self.__name__)

    __call__ = __getitem__ = __iter__ = __enter__ = _refuse

    def __mro_entries__(self, bases: tuple) -> tuple[type, ...]:
        return (type(self.__name__, (), {"__new__": self._refuse}),)

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(self)(f"{self.__name__}.{name}")

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__  # in annotations


class Inert(Missing):
    """A name by which source registers something with PyTorch, which has no meaning here: calls do nothing."""

    def __call__(self, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        return function if callable(function) else self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __bool__(self) -> bool:
        return False


class Alias(type):
    """The metaclass of classes whose instances are the objects of other classes, `aliased`."""

    aliased: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.aliased)


class Variable(metaclass=Alias):
    """What tensors were wrapped in before PyTorch 0.4: their values, without a history."""

    aliased = miniflow.Tensor

    def __new__(cls, data: Any, requires_grad: bool = False) -> Any:
        return data.detach().requires_grad_(requires_grad)


class Device(metaclass=Alias):
    """`torch.device`; the device "meta" is not there, and equal to none."""

    aliased = miniflow.device

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return Missing("torch.device('meta')") if "meta" in args else miniflow.device(*args, **kwargs)


def autocast_on_cuda(enabled: bool = True, dtype: Any = None, cache_enabled: Any = None) -> Any:
    """`torch.cuda.amp.autocast`, whose arguments stand in another order than those of `torch.autocast`."""
    return miniflow.amp.autocast("cuda", dtype, enabled, cache_enabled)


class Wrapper(miniflow.nn.Module):
    """A model within another, whose attribute `module` it is."""

    def __init__(self, module: miniflow.nn.Module, *args: Any, **kwargs: Any):
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class DataParallel(Wrapper):
    """Of PyTorch; here the model runs on the device where it is, with the whole batch."""


class DistributedDataParallel(Wrapper):
    """The wrapper that PyTorch has of this name; OneFlow's is a function that returns the model itself."""

    positions = (
        "device_ids", "output_device", "dim", "broadcast_buffers", "init_sync", "process_group", "bucket_cap_mb",
        "find_unused_parameters", "check_reduction", "gradient_as_bucket_view", "static_graph",
        "delay_all_reduce_named_params", "param_to_hook_all_reduce", "mixed_precision", "device_mesh",
    )  # fmt: skip

    def __init__(self, module: miniflow.nn.Module, *args: Any, **kwargs: Any):
        named = dict(zip(self.positions, args, strict=False))
        super().__init__(miniflow.nn.parallel.DistributedDataParallel(module, **named, **kwargs))
        self.no_sync, self.join = self.module.no_sync, self.module.join


def detect_anomaly(*args: Any, **kwargs: Any) -> Any:
    """A block, or a setting, that reports nothing: NaN in a backward pass is not looked for."""
    warnings.warn("torch.autograd: anomalies in backward are not detected by miniflow", stacklevel=2)
    return nullcontext()


class Operators(ModuleType):
    """`torch.ops.NAMESPACE`: the functions of miniflow, each of which is its only overload."""

    def __init__(self, name: str, **names: Any):
        super().__init__(name)
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        operator: Any = functools.partial(getattr(miniflow, name, None) or Missing(f"{self.__name__}.{name}"))
        operator.default = operator
        return operator


def cache_folder() -> str:
    """Where PyTorch keeps what it downloads."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def missing(module: str, *names: str) -> dict[str, Any]:
    """Names that source reads off the module before it is known whether they are used."""
    return {name: Missing(f"{module}.{name}") for name in names}


ALSO_IN_TORCH = (
    "adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear binary_cross_entropy_with_logits channel_shuffle "
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss ctc_loss embedding "
    "embedding_bag group_norm hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss max_pool1d "
    "max_pool2d max_pool3d pixel_shuffle pixel_unshuffle poisson_nll_loss rrelu triplet_margin_loss"
).split()
"""Functions of torch.nn.functional that are in torch as well."""

COMPILED = Inert("torch._C")
COMPILED._nn = SimpleNamespace(_parse_to=parse_to)

# names that have no meaning here, but without which much source cannot be imported: the same place in torch -> names
STAND_INS: dict[str, dict[str, Any]] = {
    "torch": {
        **{"__version__": VERSION, "asarray": asarray, "compile": same, "device": Device, "div": div},
        **{"UntypedStorage": UntypedStorage, "_assert": require, "_softmax_backward_data": softmax_backward},
        **{name: getattr(functional, name) for name in ALSO_IN_TORCH},
        **{"_C": COMPILED, **{name: Inert(f"torch.{name}") for name in ("_custom_ops", "_dynamo", "library")}},
        **missing("torch", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"),
        **missing("torch", "PyTorchFileReader"),
        **{name: name for name in ("strided", "preserve_format", "contiguous_format", "channels_last")},
        **{"are_deterministic_algorithms_enabled": never, "use_deterministic_algorithms": nothing},
        **dict.fromkeys(("set_num_threads", "set_float32_matmul_precision"), nothing),
    },
    "torch.accelerator": {
        **{"is_available": miniflow.cuda.is_available, "device_count": device_count},
        "current_accelerator": lambda: miniflow.device("cuda") if miniflow.cuda.is_available() else None,
    },
    "torch.autograd": {
        "Variable": Variable,
        "detect_anomaly": detect_anomaly,
        "set_detect_anomaly": detect_anomaly,
    },  # fmt: skip
    "torch.autograd.profiler": missing("torch.autograd.profiler", "emit_nvtx"),
    "torch.backends.cudnn": {"benchmark": False, "deterministic": False, "enabled": False, "is_available": never},
    "torch.backends.cuda": {
        **{"is_built": never, "matmul": SimpleNamespace(allow_tf32=False), "sdp_kernel": some_kernels},
    },
    "torch.backends.mps": {"is_available": never, "is_built": never},
    "torch.jit": {
        **dict.fromkeys(("script", "ignore", "unused", "export", "interface"), same),
        "annotate": lambda kind, value: value,
        **missing("torch.jit", "ScriptModule", "ScriptFunction"),
        **dict.fromkeys(("script_if_tracing", "_script_if_tracing", "_overload_method"), same),
        **{"is_scripting": never, "is_tracing": is_recording},
        "Final": Final,
    },
    "torch.jit.annotations": {"BroadcastingList2": list, "List": list},
    "torch.compiler": {
        **dict.fromkeys(("allow_in_graph", "disable"), same),
        "is_compiling": never,
        "is_exporting": never,
    },
    "torch.nn": {"DataParallel": DataParallel},
    "torch.nn.attention": {
        "sdpa_kernel": some_kernels,
        "SDPBackend": enum.Enum("SDPBackend", "MATH FLASH_ATTENTION EFFICIENT_ATTENTION CUDNN_ATTENTION"),
    },
    "torch.nn.init": {
        name.removesuffix("_"): function for name, function in vars(init).items() if name[-1] == "_" != name[0]
    },
    "torch.nn.parallel": {"DataParallel": DataParallel, "DistributedDataParallel": DistributedDataParallel},
    "torch.distributed": {
        "ReduceOp": Alias("ReduceOp", (), {**ReduceOp.__members__, "RedOpType": ReduceOp, "aliased": ReduceOp}),
        "is_torchelastic_launched": never,
        **{name: Inert(f"torch.distributed.{name}") for name in ("fsdp", "tensor")},
    },
    "torch.fx": {"wrap": same, **missing("torch.fx", "Tracer", "Graph", "GraphModule", "Proxy", "node", "proxy")},
    "torch.cuda": {  # one generator draws the numbers of all devices
        "get_rng_state": lambda device="cuda": miniflow.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": miniflow.set_rng_state(state),
        **{"get_rng_state_all": list, "set_rng_state_all": nothing, "device_count": device_count},
    },
    "torch.cuda.amp": {
        "autocast": autocast_on_cuda,
        "GradScaler": functools.partial(miniflow.amp.GradScaler, "cuda"),
    },  # fmt: skip
    "torch.nn.modules.conv": {"_ConvNd": Alias("_ConvNd", (), {"aliased": (conv.Convolution, conv.ConvTranspose2d)})},
    "torch.nn.modules.dropout": {"_DropoutNd": miniflow.nn.Dropout},
    "torch.nn.modules.instancenorm": {"_InstanceNorm": norm.InstanceNorm},
    "torch.nn.modules.utils": {"_ntuple": ntuple, "_single": ntuple(1), "_pair": ntuple(2), "_triple": ntuple(3)},
    "torch.hub": {"_get_torch_home": cache_folder, "get_dir": lambda: os.path.join(cache_folder(), "hub")},
    "torch.ops": {"load_library": never, "torchvision": Operators("torch.ops.torchvision", _cuda_version=lambda: -1)},
    "torch.onnx": {"register_custom_op_symbolic": same},
    "torch.onnx.symbolic_helper": {"parse_args": same},
    "torch.profiler": {"kineto_available": never},
    "torch.utils._python_dispatch": {"is_traceable_wrapper_subclass": never},
    "torch.version": {"cuda": None, "hip": None, "__version__": VERSION},
    "safetensors.torch": {
        "load_file": lambda filename, device="cpu": miniflow.load(filename, map_location=device),
        "save_file": lambda tensors, filename, metadata=None: miniflow.save(tensors, filename),
        "load_model": lambda model, filename, strict=True, device="cpu": model.load_state_dict(
            miniflow.load(filename, map_location=device), strict
        ),
        "storage_ptr": lambda tensor: tensor.untyped_storage().data_ptr(),
        "storage_size": lambda tensor: tensor.untyped_storage().nbytes(),
        "save_model": lambda model, filename, metadata=None: miniflow.save(model.state_dict(), filename),
    },
    "torch.overrides": {"has_torch_function": never, "is_tensor_like": lambda x: isinstance(x, miniflow.Tensor)},
}
VISION = ("torchvision", "flowvision")
"""Libraries that `miniflow.vision` stands for where they are not installed."""
LAYERS = (
    "activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold instancenorm linear "
    "loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling utils"
).split()
"""The files of torch.nn.modules."""
MODULES = {  # the module, of miniflow but for one, that stands for another one, where the name is another
    "flowvision.models.neural_style_transfer.stylenet": "miniflow.vision.models.style_transfer",
    "torch.autograd.functional": "miniflow.func.functional",
    "torch.autograd.profiler": "miniflow.profiler",
    "torch.cuda.amp": "miniflow.amp",
    "torch.nn.parameter": "miniflow.nn.parameter",
    "torch.nn.modules.batchnorm": "miniflow.nn.modules.norm",
    "torch.utils._pytree": "miniflow.utils.pytree",
    "torch.utils.checkpoint": "miniflow.utils.checkpoint",
    "torch.utils.tensorboard": "tensorboardX",  # which has the same names, if it is installed
    "safetensors.torch": "miniflow.serialization.states",
}


class Mock(ModuleType):
    """A module of torch whose names are those of one of miniflow."""

    def __init__(self, name: str, real: ModuleType):
        super().__init__(name, f"The names of {name} in miniflow.")
        self.__path__: list[str] = []  # a package: it may have submodules
        vars(self).update(real=real, **STAND_INS.get(name, {}))

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        is_file = self.__name__ == "torch.nn.modules" and name in LAYERS
        if is_file or full in STAND_INS or full in MODULES or isinstance(getattr(self.real, name, None), ModuleType):
            return importlib.import_module(full)
        if name == "__all__":
            return [attribute for attribute in dir(self.real) if not attribute.startswith("_")]
        if name.startswith("__") or not hasattr(self.real, name):
            raise AttributeError(f"{full} is not in miniflow", name=name, obj=self)
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, Missing):  # which `hasattr` is not to find
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(self.real)})


class Distribution(importlib.metadata.Distribution):
    """The package torch, for those who ask which version of it is installed."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return path


class Finder(importlib.metadata.DistributionFinder, importlib.abc.Loader):
    """Finds `torch`, `safetensors.torch`, whose other half is compiled for PyTorch, and libraries that are absent."""

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        return [Distribution()] if context is None or context.name in (None, "torch") else []

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not _is_mocked(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        outer, _, last = spec.name.rpartition(".")
        if isinstance(stand_in := STAND_INS.get(outer, {}).get(last), Inert):
            return stand_in
        if isinstance(sys.modules.get(outer), Inert):
            return Inert(spec.name)
        root, _, rest = spec.name.partition(".")
        same = ".".join(filter(None, ("miniflow.vision" if root in VISION else "miniflow", rest)))
        name = MODULES.get(spec.name, "miniflow.nn" if spec.name.startswith("torch.nn.modules") else same)
        parent, _, last = name.rpartition(".")
        try:
            real = importlib.import_module(name)
        except ModuleNotFoundError:  # an attribute that is no module of its own, as `miniflow.nn.parallel`, or nothing
            real = getattr(sys.modules.get(parent), last, None)
        if not isinstance(real, ModuleType):
            return Mock(spec.name, ModuleType(name)) if spec.name in STAND_INS else Missing(spec.name)
        return Mock(spec.name, real)

    def exec_module(self, module: ModuleType) -> None:
        pass


class enable:
    """Let `import torch` give miniflow, from now on or within a `with` block.

    Args:
        lazy, verbose: of OneFlow; a name that is missing is refused when it is used in any case.
        extra_dict: further modules of torch, and the modules of miniflow that stand for them.

    >>> import miniflow as flow
    >>> with flow.mock_torch.enable():
    ...     import torch
    ...     torch.ones(2).sum().item()
    2.0

    Source: `oneflow.mock_torch.enable`.
    """

    finder = Finder()
    aside: dict[str, ModuleType] = {}

    def __init__(self, lazy: bool = True, verbose: bool = False, extra_dict: Mapping[str, str] | None = None) -> None:
        MODULES.update(extra_dict or {})
        self.was_enabled = is_enabled()
        if not self.was_enabled:
            enable.aside = _take_mocked()
            sys.meta_path.insert(0, self.finder)
            importlib.import_module("safetensors.torch")  # source reads it off `safetensors`, whoever imported that

    def __enter__(self) -> enable:
        return self

    def __exit__(self, *error: object) -> None:
        if not self.was_enabled:
            disable()


def disable() -> None:
    """Let `import torch` give PyTorch again, if it is installed."""
    if is_enabled():
        sys.meta_path.remove(enable.finder)
        _take_mocked()
        sys.modules.update(enable.aside)
        if "safetensors.torch" in enable.aside:
            sys.modules["safetensors"].torch = enable.aside["safetensors.torch"]


def is_enabled() -> bool:
    """Whether `import torch` gives miniflow."""
    return enable.finder in sys.meta_path


def _is_mocked(name: str) -> bool:
    root = name.partition(".")[0]
    is_safetensors = name == "safetensors.torch" or name.startswith("safetensors.torch.")
    return root == "torch" or is_safetensors or (root in VISION and not _is_installed(root))


def _is_installed(library: str) -> bool:
    return importlib.machinery.PathFinder.find_spec(library) is not None


def _take_mocked() -> dict[str, ModuleType]:
    """Remove what is mocked from the modules that were imported; returns them."""
    names = [name for name in sys.modules if _is_mocked(name)]
    return {name: sys.modules.pop(name) for name in names}


def main(arguments: Sequence[str]) -> None:
    """Run a script, or a module after -m, with `import torch` giving miniflow."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("python -m miniflow.mock_torch SCRIPT.py [ARGUMENTS], or -m MODULE [ARGUMENTS]")
        return
    as_module = arguments[0] == "-m"
    if not as_module and not os.path.exists(arguments[0]):
        sys.exit(f"python -m miniflow.mock_torch: cannot read {arguments[0]}: there is no such file")
    sys.argv = list(arguments[as_module:])
    with enable():
        if as_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
            runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    miniflow.mock_torch.main(sys.argv[1:])  # of the module that `flow.mock_torch` is, rather than of this second copy
