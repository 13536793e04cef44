"""What is touched of numba-cuda and numba-cuda-mlir exists there; nothing of it runs without a GPU."""

import importlib
import inspect
import re

import numba
import numpy as np
import pytest

from miniflow.hostcuda import host as cuda
from miniflow.hostcuda import numba_cuda
from miniflow.hostcuda.ptx import compile_to_ptx, numba_types

INSTALLED = [package for package in numba_cuda.PACKAGES if package.installed]
if not INSTALLED:
    pytest.skip("neither numba-cuda-mlir nor numba-cuda is installed", allow_module_level=True)

pytestmark = pytest.mark.ptx
PARAMETERS = {
    "typing.typeof:typeof": ["val"],
    "typing.typeof:typeof_impl.register": ["cls", "func"],
    "types:Type": None,
    "cudadrv.driver:MemoryPointer": ["context", "pointer", "size"],
    "cudadrv.driver:device_to_host": ["dst", "src", "size", "stream"],
    "cudadrv.driver:host_to_device": ["dst", "src", "size", "stream"],
    "cudadrv.driver:device_to_device": ["dst", "src", "size", "stream"],
    "cudadrv.driver:CudaAPIError": None,
    "cudadrv.driver:Context.memalloc": ["self", "bytesize"],
    "cudadrv.devicearray:DeviceNDArray": ["shape", "strides", "dtype", "stream", "gpu_data"],
    "core.config:CUDA_LOW_OCCUPANCY_WARNINGS": None,
}
OF_ONE = {
    "numba-cuda": {
        "numba.cuda.descriptor:cuda_target.typing_context.resolve_value_type": ["val"],
        "numba.cuda.dispatcher:get_current_device": [],
    },
    "numba-cuda-mlir": {
        "numba_cuda_mlir.descriptor:mlir_target.typing_context.resolve_value_type": ["val"],
        "numba_cuda_mlir.tools:_cached_cc": None,
        "numba_cuda_mlir.extending:lower_builtin": ["func"],
        "numba_cuda_mlir.extending:refresh_registries": [],
    },
}


def names_of(package):
    return OF_ONE[str(package)] | {f"{package.internals}.{name}": given for name, given in PARAMETERS.items()}


@pytest.mark.few(99)
@pytest.mark.parametrize(("package", "name"), [(p, name) for p in INSTALLED for name in names_of(p)], ids=str)
def test_names_and_parameters(package, name):
    package.compiler()
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    expected = names_of(package)[name]
    if expected is not None:
        parameters = inspect.signature(found).parameters
        assert [p for p in parameters if p in expected] == expected
    assert path.rpartition(".")[2] in numba_cuda.__doc__


def test_the_list_names_everything():
    source = inspect.getsource(numba_cuda)
    parts = set(re.findall(r'[.]module\("([\w.]+)"\)', source)) - {"random"}
    assert len(parts) == 8 and not [part for part in parts if f"numba.cuda.{part}" not in numba_cuda.__doc__]


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_types_of_values(package):
    values = [np.zeros((2, 3), np.float32), 2.5, package.module("types").int32, (np.zeros(3), 1)]
    array, number, given, pair = numba_types(values, package)
    assert str(array) == "array(float32, 2d, C)" and str(number) == "float64" and str(given) == "int32"
    assert [str(part) for part in pair.types] == ["array(float64, 1d, C)", "int64"]


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_types_of_numba(package):
    types = numba.types
    given = [types.float32, types.Array(types.int8, 2, "A"), types.Tuple((types.bool_, types.Array(types.f8, 1, "C")))]
    flag, array, pair = numba_types(given, package)
    assert (str(flag), str(array), [str(part) for part in pair.types]) == (
        "float32", "array(int8, 2d, A)", ["bool", "array(float64, 1d, C)"],
    )  # fmt: skip
    if package is numba_cuda.SUCCESSOR:
        known = package.module("types").Type
        assert [isinstance(found, known) for found in (flag, array, array.dtype, pair, *pair.types)] == [True] * 6


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_the_capability_is_put_back(package):
    package.compiler()
    if package is numba_cuda.SUCCESSOR:
        from numba_cuda_mlir.tools import get_gpu_compute_capability as asked

        with package.capability((9, 0)):
            assert asked(tuple) == (9, 0)
        with pytest.raises(Exception, match="CUDA|cuda"):  # there is no driver to be asked
            asked(tuple)
    else:
        asked = package.module("dispatcher").get_current_device
        with package.capability((9, 0)):
            assert package.module("dispatcher").get_current_device().compute_capability == (9, 0)
        assert package.module("dispatcher").get_current_device is asked


@numba.njit
def three_quarters(x):
    return type(x)(0.75) * x


@cuda.jit(device=True)
def exponent(x):
    return (np.float32(x).view(np.int32) >> 23) - 127


@cuda.jit
def what_the_successor_lacks(x, out):
    out[0] = three_quarters(x[0])
    out[1] = exponent(x[1])


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_gaps_of_the_successor_are_filled(package):
    x, out = np.array([2, 8], np.float32), np.zeros(2, np.float32)
    ptx = compile_to_ptx(what_the_successor_lacks, [x, out], (7, 5), package)
    assert "0f3F400000" in ptx and "f64" not in ptx  # 0.75, and nothing in double precision
    what_the_successor_lacks[1, 1](x, out)
    np.testing.assert_array_equal(out, np.array([1.5, 3], np.float32))


def test_the_successor_is_preferred():
    assert numba_cuda.package() is INSTALLED[0]
