"""hostcuda in the place of `numba.cuda` and `numba_cuda_mlir.cuda`, for programs that import one of these.

    pytest -p miniflow.hostcuda.pytest_plugin
    python -m miniflow.hostcuda script.py

An import looks in `sys.modules` first: there stands the host executor under the names of both packages, whether they
are installed or not. What users meet of their modules is in `modules`; any other is not found.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from miniflow.hostcuda.choice import choose

PACKAGES = ("numba.cuda", "numba_cuda_mlir", "numba_cuda_mlir.cuda", "numba_cuda_mlir.numba_cuda")


def install() -> str:
    """Put the host executor in the place of both packages, if it is what `cuda` of this package is.

    Returns:
        What `numba.cuda` is from now on, in words. Where a GPU is usable nothing is changed, unless MINIFLOW_CUDA=host.

    Raises:
        CudaDeviceError: if MINIFLOW_CUDA asks for what is impossible here.
    """
    cuda = choose()
    if not hasattr(cuda, "is_host_executor"):
        return f"numba.cuda itself ({cuda.__name__})"
    for name in [name for name in sys.modules if f"{name}.".startswith(("numba.cuda.", "numba_cuda_mlir."))]:
        del sys.modules[name]
    mlir = ModuleType("numba_cuda_mlir", "hostcuda in the place of numba-cuda-mlir.")
    mlir.__spec__ = ModuleSpec(mlir.__name__, None)
    mlir.cuda = mlir.numba_cuda = importlib.import_module("numba").cuda = cuda
    mlir.types = cuda.types
    sys.modules |= dict(zip(PACKAGES, (cuda, mlir, cuda, cuda), strict=True)) | {"numba_cuda_mlir.types": mlir.types}
    for package in PACKAGES:
        if package != mlir.__name__:
            sys.modules |= {f"{package}.{name}": module for name, module in modules(cuda).items()}
    return f"miniflow's host executor, on the CPU ({cuda.__name__})"


def modules(cuda: ModuleType) -> dict[str, Any]:
    """The modules of `numba.cuda` that users import from, as far as they mean something on the CPU."""
    drivers = {f"cudadrv.{name}": module for name, module in vars(cuda.cudadrv).items()}
    drivers |= {f"core.{name}": getattr(cuda, name) for name in ("config", "errors")}
    names = "args cg config core cudadrv dispatcher errors fp16 libdevice random types vectorizers".split()
    return {name: getattr(cuda, name) for name in names} | drivers
