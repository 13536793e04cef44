"""The facade: the names of numba.cuda, and the pretend devices behind it."""

import importlib
import threading
from types import SimpleNamespace

import pytest

from miniflow.hostcuda import CudaDeviceError, devices
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.intrinsic import INTRINSICS, Intrinsic
from miniflow.hostcuda.libdevice import TABLE

HOST_SIDE = """
    In InOut Out as_cuda_array close current_context default_stream defer_cleanup detect device_array
    device_array_like event event_elapsed_time get_current_device gpus guvectorize is_available is_cuda_array
    is_float16_supported jit legacy_default_stream list_devices managed_array mapped_array mapped_array_like
    per_thread_default_stream pinned pinned_array pinned_array_like profile_start profile_stop profiling reduce
    select_device stream synchronize to_device vectorize
""".split()


@pytest.mark.ptx
def test_every_name_is_one_of_numba_cuda():
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed; numba's own numba.cuda is an older one")
    numba_cuda = importlib.import_module("numba.cuda")
    assert not [name for name in HOST_SIDE if not hasattr(cuda, name)]
    ours = {"vote_sync_intrinsic", "rsqrt"}  # of older releases; of libdevice
    assert not [name for name in {*HOST_SIDE, *INTRINSICS} - ours if not hasattr(numba_cuda, name)]
    for group, members in INTRINSICS.items():
        if isinstance(members, SimpleNamespace):
            assert not [name for name in vars(members) if not hasattr(getattr(numba_cuda, group), name)]


@pytest.mark.parametrize(
    "name", ["grid", "syncthreads", "shared.array", "atomic.add", "cg.this_grid", "libdevice.expf"]
)
def test_names_of_kernels_explain_themselves_on_the_host(name):
    found = cuda
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, Intrinsic) and repr(found) == f"cuda.{name}"
    with pytest.raises(RuntimeError, match=f"cuda.{name} works inside a kernel only"):
        found(1)


def test_numba_types_are_at_hand():
    from numba import types

    assert cuda.float32 is types.float32 and cuda.types is types


def test_missing_names_are_explained():
    with pytest.raises(AttributeError, match="host executor's cuda has no 'float4x4': numba.cuda may have it"):
        _ = cuda.float4x4


def test_libdevice_has_both_precisions():
    assert TABLE["expf"].takes == ("float32",) and TABLE["exp"].gives == "float64"
    assert TABLE["powf"].function == "math.pow" and len(TABLE["fmaf"].takes) == 3
    libdevice = pytest.importorskip("numba.cuda.libdevicefuncs", reason="numba without CUDA").functions
    for name, counterpart in TABLE.items():
        result, arguments = libdevice[f"__nv_{name}"]
        if any(argument.is_ptr for argument in arguments):  # there, results are returned through pointers
            assert counterpart.gives == ""
            continue
        width = [str(argument.ty).lstrip("u") for argument in arguments]
        assert [dtype.lstrip("u") for dtype in counterpart.takes] == width, name
        assert counterpart.gives.lstrip("u") == str(result).lstrip("u"), name


# Devices


def test_there_is_one_device_without_being_asked(monkeypatch):
    monkeypatch.delenv("MINIFLOW_DEVICES", raising=False)
    devices.devices.cache_clear()
    assert len(cuda.gpus) == 1 and cuda.gpus.current.id == 0
    devices.devices.cache_clear()


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", ""])
def test_a_wrong_number_of_devices_is_refused(monkeypatch, text):
    monkeypatch.setenv("MINIFLOW_DEVICES", text)
    devices.devices.cache_clear()
    with pytest.raises(CudaDeviceError, match=f"MINIFLOW_DEVICES is '{text}'; expected how many devices to pretend"):
        len(cuda.gpus)
    monkeypatch.undo()
    devices.devices.cache_clear()


def test_selecting_devices(two_devices):
    assert cuda.select_device(1).id == 1
    assert cuda.get_current_device().id == 1 and cuda.current_context().device.id == 1
    with cuda.gpus[0]:
        assert cuda.get_current_device().id == 0
        with cuda.gpus[1]:
            assert cuda.get_current_device().id == 1
        assert cuda.get_current_device().id == 0
    assert cuda.get_current_device().id == 1
    cuda.close()
    assert cuda.get_current_device().id == 0


def test_a_device_stays_current_only_until_an_error(two_devices):
    with pytest.raises(ZeroDivisionError), cuda.gpus[1]:
        _ = 1 / 0
    assert cuda.get_current_device().id == 0


def test_devices_that_do_not_exist(two_devices):
    with pytest.raises(CudaDeviceError, match="device 2 does not exist: there are 2.*set MINIFLOW_DEVICES before"):
        cuda.select_device(2)
    with pytest.raises(CudaDeviceError, match="device 'cuda:1' does not exist: there are 2, numbered from 0"):
        cuda.select_device("cuda:1")
    with pytest.raises(IndexError, match="device 2 of cuda.gpus, which has 2"):
        cuda.gpus[2]
    assert cuda.gpus[-1].id == 1
    assert [device.id for device in cuda.gpus] == [0, 1] == [device.id for device in cuda.list_devices()[:]]


def test_each_thread_has_its_own_current_device(two_devices):
    cuda.select_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(cuda.get_current_device().id))
    thread.start()
    thread.join()
    assert seen == [0] and cuda.get_current_device().id == 1


def test_a_device_says_what_it_is():
    device = cuda.get_current_device()
    assert "host executor" in device.name and device.compute_capability == (9, 0)
    assert (device.MAX_THREADS_PER_BLOCK, device.WARP_SIZE, device.MAX_BLOCK_DIM_Z) == (1024, 32, 64)
    assert (device.MAX_GRID_DIM_X, device.MAX_GRID_DIM_Y) == (2**31 - 1, 65535)
    assert (device.MAX_SHARED_MEMORY_PER_BLOCK, device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == (49152, 232448)
    assert device.MULTIPROCESSOR_COUNT >= 1
    assert cuda.gpus[0].name == device.name


def test_detect_prints_the_devices(capsys, two_devices):
    assert cuda.detect() is True
    printed = capsys.readouterr().out
    assert "Found 2 CUDA devices, pretended" in printed and "id 1" in printed


def test_memory_of_a_device():
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total


def test_contexts_belong_to_devices(two_devices):
    context = cuda.gpus[1]
    assert context.id == 1 and context.device is context
    assert cuda.current_context(1) is context and cuda.get_current_device().id == 1
    assert context.reset() is None and context.synchronize() is None
    assert "<CUDA device 0 'miniflow host executor (CPU)'>" in repr(cuda.gpus[0])
