"""Each name of numba.cuda is one of ours, or stands in docs/numba_cuda.md with the reason why not."""

import asyncio
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.errors import DeviceArrayError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "numba_cuda.md").read_text(encoding="utf-8")
ABSENT = [name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]

DOCUMENTED = """
    ldca ldcg ldcs ldlu ldcv stcg stcs stwb stwt
    is_available detect cudadrv.driver.Context current_context require_context synchronize close gpus gpus.current
    cudadrv.devices._DeviceContextManager select_device get_current_device list_devices cudadrv.driver.Device
    cudadrv.driver.Device.compute_capability compile compile_all compile_for_current_device compile_ptx
    compile_ptx_for_current_device profile_start profile_stop profiling event event_elapsed_time cudadrv.driver.Event
    cudadrv.driver.Event.elapsed_time cudadrv.driver.Event.query cudadrv.driver.Event.record
    cudadrv.driver.Event.synchronize cudadrv.driver.Event.wait cudadrv.driver.Stream
    cudadrv.driver.Stream.add_callback cudadrv.driver.Stream.async_done cudadrv.driver.Stream.auto_synchronize
    cudadrv.driver.Stream.synchronize stream default_stream legacy_default_stream per_thread_default_stream
    external_stream cudadrv.driver.Context.get_memory_info cudadrv.driver.Context.pop cudadrv.driver.Context.push
    cudadrv.driver.Context.reset cudadrv.driver.Device.reset cudadrv.driver.Device.supports_float16
    jit dispatcher.CUDADispatcher threadIdx blockIdx blockDim gridDim laneid warpsize grid gridsize shared.array
    local.array const.array_like atomic.add atomic.sub atomic.and_ atomic.or_ atomic.xor atomic.exch atomic.inc
    atomic.dec atomic.max atomic.min atomic.nanmax atomic.nanmin atomic.cas atomic.compare_and_swap
    syncthreads syncthreads_count syncthreads_and syncthreads_or cg.this_grid cg.GridGroup cg.GridGroup.sync
    threadfence threadfence_block threadfence_system syncwarp all_sync any_sync eq_sync ballot_sync shfl_sync
    shfl_up_sync shfl_down_sync shfl_xor_sync match_any_sync match_all_sync activemask lanemask_lt popc brev clz ffs
    fma cbrt selp nanosleep is_float16_supported is_bfloat16_supported types types.bfloat16 bf16.hadd bf16.hfma_relu
    fp16.hfma fp16.hadd fp16.hsub fp16.hmul fp16.hdiv fp16.hneg fp16.habs fp16.hsin fp16.hcos fp16.hlog fp16.hlog10
    fp16.hlog2 fp16.hexp fp16.hexp10 fp16.hexp2 fp16.hfloor fp16.hceil fp16.hsqrt fp16.hrsqrt fp16.hrcp fp16.hrint
    fp16.htrunc fp16.heq fp16.hne fp16.hgt fp16.hge fp16.hlt fp16.hle fp16.hmax fp16.hmin
    to_device device_array device_array_like pinned_array pinned_array_like mapped_array mapped_array_like
    managed_array pinned mapped is_cuda_array as_cuda_array from_cuda_array_interface defer_cleanup
    cudadrv.devicearray.DeviceNDArray cudadrv.devicearray.DeviceRecord cudadrv.devicearray.MappedNDArray
    cudadrv.devicearray.DeviceNDArray.copy_to_device cudadrv.devicearray.DeviceNDArray.copy_to_host
    cudadrv.devicearray.DeviceNDArray.is_c_contiguous cudadrv.devicearray.DeviceNDArray.is_f_contiguous
    cudadrv.devicearray.DeviceNDArray.ravel cudadrv.devicearray.DeviceNDArray.reshape
    cudadrv.devicearray.DeviceNDArray.split cudadrv.devicearray.MappedNDArray.split
    cudadrv.devicearray.MappedNDArray.copy_to_device cudadrv.devicearray.MappedNDArray.copy_to_host
    cudadrv.devicearray.DeviceNDArray.get_ipc_handle cudadrv.devicearray.IpcArrayHandle open_ipc_array
    dispatcher._Kernel.max_cooperative_grid_blocks declare_device LinkableCode PTXSource CUSource Fatbin Cubin Archive
    Object LTOIR cudadrv.devices.gpus cudadrv.devices._DeviceList BaseCUDAMemoryManager HostOnlyCUDAMemoryManager
    GetIpcHandleMixin MemoryPointer cudadrv.driver.AutoFreePointer MappedMemory PinnedMemory MemoryInfo IpcHandle
    set_memory_manager Reduce reduce vectorize guvectorize In Out InOut
    random.create_xoroshiro128p_states random.init_xoroshiro128p_states random.xoroshiro128p_uniform_float32
    random.xoroshiro128p_uniform_float64 random.xoroshiro128p_normal_float32 random.xoroshiro128p_normal_float64
    literal_unroll libdevice.expf libdevice.fast_powf libdevice.int2float_rd libdevice.fsqrt_rn
    compile_mlir compile_for compile_cubin inline_ptx carray farray shared_array local_array experimental intrin
    tensor_map extending.overload extending.register_planner fp8.fp8_e4m3
""".split()
"""Of both documentations, without the prefix `numba.cuda.` or `numba_cuda_mlir.cuda.`."""
INSTALLED = """
import types
from numba import cuda
import numba.cuda.random
from numba.cuda import dispatcher, libdevicefuncs
from numba.cuda.cudadrv import devicearray, driver
public = lambda owner: [name for name in dir(owner) if name[0] != "_"]
print(*(name for name in public(cuda) if not isinstance(getattr(cuda, name), types.ModuleType)))
print(*(f"libdevice.{name[5:]}" for name in libdevicefuncs.functions))
for owner in (devicearray.DeviceNDArray, dispatcher.CUDADispatcher, driver.Context, driver.Device, driver.Stream,
              driver.Event):
    print(*(f"{owner.__name__}.{name}" for name in public(owner)))
"""
OWNERS = {
    "DeviceNDArray": cuda.cudadrv.devicearray.DeviceNDArray,
    "CUDADispatcher": cuda.jit(lambda: None),
    **{name: getattr(cuda.cudadrv.driver, name) for name in ("Stream", "Event")},
    **{name: cuda.get_current_device() for name in ("Context", "Device")},
}


def is_there(name):
    """Whether the host executor has a name."""
    first, *rest = name.split(".")
    found = OWNERS[first] if first in OWNERS else getattr(cuda, first, None)
    for part in rest:
        found = getattr(found, part, None)
    return found is not None


def is_listed(name):
    return any(fnmatchcase(name, pattern) for pattern in ABSENT)


def test_each_documented_name_is_there_or_listed():
    assert len(DOCUMENTED) > 200 and len(ABSENT) > 100
    assert not [name for name in DOCUMENTED if not is_there(name) and not is_listed(name)]
    assert not [name for name in DOCUMENTED if is_there(name) and is_listed(name)]


@pytest.mark.ptx
def test_each_name_of_the_installed_package_is_there_or_listed():
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed; numba's own numba.cuda is an older one")
    names = subprocess.run([sys.executable, "-c", INSTALLED], capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 600 and not [name for name in names if not is_there(name) and not is_listed(name)]
    patterns = [name for name in ABSENT if not any(fnmatchcase(n, name) for n in [*names, *DOCUMENTED])]
    assert not patterns, "these stand for nothing"


def test_mapped_arrays_are_those_of_the_host():
    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    first, second = np.arange(5, dtype=np.float32), np.ones(3, np.float32)
    with cuda.mapped(first) as array:
        double[1, 32](array)
    with cuda.mapped(first, second, stream=cuda.stream()) as arrays:
        for array in arrays:
            double[1, 32](array)
    np.testing.assert_array_equal(first, np.arange(5) * 4)
    np.testing.assert_array_equal(second, [2, 2, 2])


@pytest.mark.parametrize("make", [cuda.to_device, lambda array: array.view(cuda.cudadrv.devicearray.MappedNDArray)])
def test_arrays_are_split_and_copied(make):
    array = make(np.arange(7, dtype=np.int64))
    parts = list(array.split(3))
    assert [type(part) for part in parts] == [type(array)] * 3
    for part, expected in zip(parts, ([0, 1, 2], [3, 4, 5], [6]), strict=True):
        np.testing.assert_array_equal(part.copy_to_host(), expected)
    parts[1].copy_to_device(np.array([30, 40, 50]))
    array.setitem(0, 10, stream=cuda.stream())
    filled = np.zeros(7, np.int64)
    assert array.getitem(slice(0, 2)).copy_to_host(stream=0).tolist() == [10, 1] and array.getitem(4) == 40
    assert array.copy_to_host(filled) is filled and filled.tolist() == [10, 1, 2, 30, 40, 50, 6]
    assert array.is_c_contiguous() and array.is_f_contiguous()
    with pytest.raises(DeviceArrayError, match=r"split takes a 1-D array, got shape \(7, 1\)"):
        array.reshape(7, 1).split(2)
    with pytest.raises(DeviceArrayError, match="copy_to_device: incompatible shape"):
        array.copy_to_device(np.zeros(3, np.int64))


def test_contexts_and_devices_answer():
    context = cuda.current_context()
    context.deallocations.clear()
    with context.deallocations.disable(), cuda.defer_cleanup():
        assert len(context.deallocations) == 0 and not context.deallocations.is_locked
    assert context.get_memory_info().free > 0 and isinstance(context.get_memory_info(), cuda.MemoryInfo)
    context.push()
    context.pop()
    assert cuda.current_context() is context is context.device.get_primary_context() and context.reset() is None
    assert context.compute_capability == (9, 0) and context.uuid == "GPU-00000000-0000-0000-0000-000000000000"
    assert cuda.require_context(len) is len and cuda.cuda_error() is None
    assert not cuda.is_bfloat16_supported() and not cuda.is_fp8_supported() and cuda.is_float16_supported()


def test_streams_call_back_at_once():
    called, stream = [], cuda.stream()
    stream.add_callback(lambda *arguments: called.append(arguments), "argument")
    stream.add_callback(lambda *arguments: called.append(arguments))
    assert called == [(stream, 0, "argument"), (stream, 0, None)]

    async def wait():
        return await stream.async_done()

    assert asyncio.run(wait()) is stream


def test_kernels_say_what_they_accept():
    kernel = cuda.jit("void(float32[:])")(lambda x: None)
    assert kernel.specialized and kernel.nopython_signatures == kernel.signatures and len(kernel.signatures) == 1
    assert not cuda.jit(lambda x: None).specialized
