"""What is touched of numba-cuda exists there; nothing of it runs without a GPU."""

import inspect
import re

import numpy as np
import pytest

from miniflow.hostcuda import numba_cuda

try:
    numba_cuda.package()
except ImportError as error:  # it says what is missing
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.ptx
PARAMETERS = {
    "typing.typeof:typeof": ["val"],
    "typing.typeof:typeof_impl.register": ["cls", "func"],
    "types:Type": None,
    "descriptor:cuda_target.typing_context.resolve_value_type": ["val"],
    "dispatcher:get_current_device": [],
    "cudadrv.driver:MemoryPointer": ["context", "pointer", "size"],
    "cudadrv.driver:device_to_host": ["dst", "src", "size", "stream"],
    "cudadrv.driver:host_to_device": ["dst", "src", "size", "stream"],
    "cudadrv.driver:CudaAPIError": None,
    "cudadrv.driver:Context.memalloc": ["self", "bytesize"],
    "cudadrv.devicearray:DeviceNDArray": ["shape", "strides", "dtype", "stream", "gpu_data"],
}


@pytest.mark.few(99)
@pytest.mark.parametrize("name", PARAMETERS)
def test_names_and_parameters(name):
    module, _, path = name.partition(":")
    found = numba_cuda.submodule(module)
    for part in path.split("."):
        found = getattr(found, part)
    if PARAMETERS[name] is not None:
        parameters = inspect.signature(found).parameters
        assert [p for p in parameters if p in PARAMETERS[name]] == PARAMETERS[name]
    assert path.rpartition(".")[2] in numba_cuda.__doc__


def test_the_list_names_everything():
    parts = set(re.findall(r'submodule\("([\w.]+)"\)', inspect.getsource(numba_cuda)))
    assert not [part for part in parts if f"numba.cuda.{part}" not in numba_cuda.__doc__ and part != "random"]


def test_types_of_values():
    array, number, given = numba_cuda.types_of([np.zeros((2, 3), np.float32), 2.5, numba_cuda.submodule("types").int32])
    assert str(array) == "array(float32, 2d, C)" and str(number) == "float64" and str(given) == "int32"


def test_the_capability_is_put_back():
    asked = numba_cuda.submodule("dispatcher").get_current_device
    with numba_cuda.capability((9, 0)):
        assert numba_cuda.submodule("dispatcher").get_current_device().compute_capability == (9, 0)
    assert numba_cuda.submodule("dispatcher").get_current_device is asked
