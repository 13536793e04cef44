"""Device arrays: what the host may do with them, and what it is told when it may not."""

import copy
import operator
import pickle

import ml_dtypes
import numpy as np
import pytest

from miniflow.hostcuda import CudaDeviceError
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.errors import DeviceArrayError, DeviceArrayTypeError
from miniflow.hostcuda.memory import ALIGNMENT, DeviceNDArray

RECORD = np.dtype([("x", np.float32), ("n", np.int64), ("v", np.float64, (3,)), ("in", [("a", np.int8)])], align=True)
DTYPES = [np.bool_, np.uint8, np.int16, np.float16, np.float32, np.float64, np.complex64, np.complex128]
DTYPES += [ml_dtypes.bfloat16, "M8[s]", RECORD]


def numbers(*shape, dtype=np.float32, order="C"):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)


def same(got, expected):
    """Equal in type, dtype, shape and every element."""
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, strict=True)


# Transfers


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_dtype_survives_the_round_trip(dtype):
    expected = numbers(2, 3, dtype=np.uint8).astype(dtype) if dtype is not RECORD else np.zeros((2, 3), RECORD)
    if dtype is RECORD:
        expected["x"], expected["v"][1, 2] = 3, [1, 2, 3]
    array = cuda.to_device(expected)
    assert (array.dtype, array.shape, array.strides, array.ndim) == (expected.dtype, (2, 3), expected.strides, 2)
    assert (array.size, array.nbytes) == (6, expected.nbytes)
    np.testing.assert_array_equal(array.copy_to_host(), expected, strict=True)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_shapes_and_orders(shape, order):
    expected = numbers(*shape, order=order)
    array = cuda.to_device(expected)
    same(array.copy_to_host(), expected)
    assert array.copy_to_host().strides == expected.strides
    assert (array.is_c_contiguous(), array.is_f_contiguous()) == (
        expected.flags.c_contiguous,
        expected.flags.f_contiguous,
    )
    assert array.flags["C_CONTIGUOUS"] == expected.flags.c_contiguous


def test_the_copy_is_apart_from_the_original():
    original = numbers(4)
    array = cuda.to_device(original)
    original[:] = -1
    first = array.copy_to_host()
    first[:] = -2
    same(array.copy_to_host(), numbers(4))


def test_to_device_takes_scalars_lists_and_device_arrays():
    same(cuda.to_device([1.5, 2.5]).copy_to_host(), np.array([1.5, 2.5]))
    same(cuda.to_device(np.float32(3)).copy_to_host(), np.array(3, np.float32))
    array = cuda.to_device(numbers(3))
    assert cuda.to_device(array) is array


def test_to_device_without_copying_and_into_an_array():
    empty = cuda.to_device(numbers(3), copy=False)
    assert empty.shape == (3,) and empty.allocation.initialised is False
    assert cuda.to_device(numbers(3), to=empty) is empty
    same(empty.copy_to_host(), numbers(3))
    assert cuda.to_device(numbers(3) + 1, to=empty, copy=False) is empty
    same(empty.copy_to_host(), numbers(3))


def test_an_array_with_gaps_is_not_transferred():
    with pytest.raises(DeviceArrayError, match=r"shape \(4, 3\) and strides \(24, 8\) has gaps.*ascontiguousarray"):
        cuda.to_device(numbers(4, 6)[:, ::2])
    with pytest.raises(DeviceArrayError, match="has gaps"):
        cuda.to_device(numbers(4)[::-1])
    with pytest.raises(DeviceArrayError, match="has gaps or repeats elements"):
        cuda.to_device(np.broadcast_to(numbers(3), (4, 3)))


def test_python_objects_are_refused():
    with pytest.raises(DeviceArrayTypeError, match="an array of dtype object cannot lie on a device"):
        cuda.to_device([{}, None])


def test_copy_to_host_fills_an_array():
    array, target = cuda.to_device(numbers(2, 3)), np.full((2, 3), np.nan, np.float32)
    assert array.copy_to_host(target) is target
    same(target, numbers(2, 3))
    columns = np.full((2, 3), np.nan, np.float32, order="F")
    same(array.copy_to_host(columns), numbers(2, 3))


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (np.empty((2, 3)), DeviceArrayTypeError, "incompatible dtype: float64 on one side, float32 on the other"),
        (np.empty((3, 2), np.float32), DeviceArrayError, r"incompatible shape: \(3, 2\) on one side, \(2, 3\)"),
    ],
    ids=["dtype", "shape"],
)
def test_copy_to_host_refuses_what_does_not_fit(target, error, message):
    with pytest.raises(error, match=f"copy_to_host: {message}"):
        cuda.to_device(numbers(2, 3)).copy_to_host(target)


def test_copy_to_device_from_the_host_and_from_the_device():
    array = cuda.device_array((2, 3), np.float32)
    array.copy_to_device(numbers(2, 3))
    same(array.copy_to_host(), numbers(2, 3))
    array.copy_to_device(cuda.to_device(numbers(2, 3) * 2))
    same(array.copy_to_host(), numbers(2, 3) * 2)
    array.copy_to_device(np.asfortranarray(numbers(2, 3)) + 1)  # the host's side is made contiguous first
    same(array.copy_to_host(), numbers(2, 3) + 1)


def test_copy_to_device_refuses_what_does_not_fit():
    array = cuda.device_array((2, 3), np.float32)
    with pytest.raises(DeviceArrayTypeError, match="incompatible dtype: int64.*reshape or .astype first"):
        array.copy_to_device(np.zeros((2, 3), np.int64))
    with pytest.raises(DeviceArrayError, match=r"incompatible shape: \(6,\) on one side, \(2, 3\)"):
        array.copy_to_device(numbers(6))
    with pytest.raises(DeviceArrayTypeError, match="incompatible dtype: float64"):
        array.copy_to_device([[1.0] * 3] * 2)
    with pytest.raises(DeviceArrayError, match=r"strides \(12, 8\) has gaps"):
        array[:, ::2].copy_to_device(numbers(2, 2))


# Making arrays


def test_device_array_is_empty_and_aligned():
    array = cuda.device_array((3, 5), np.int16, order="F")
    assert (array.shape, array.strides, array.dtype) == ((3, 5), (2, 6), np.dtype(np.int16))
    assert array.allocation.initialised is False
    assert array.host.ctypes.data % ALIGNMENT == 0
    assert cuda.device_array(7).dtype == np.float64
    assert cuda.device_array(np.int64(7)).shape == (7,)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((2.5,), TypeError, "integer"),
        (((2, -1),), ValueError, "negative dimensions are not allowed"),
    ],
)
def test_device_array_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        cuda.device_array(*arguments)


def test_device_array_like_keeps_the_order_without_gaps():
    like = cuda.device_array_like(numbers(3, 4, order="F"))
    assert (like.shape, like.strides, like.dtype) == ((3, 4), (4, 12), np.float32)
    assert cuda.device_array_like(numbers(6)[::2]).strides == (4,)
    assert cuda.device_array_like(cuda.to_device(numbers(2, 2))).shape == (2, 2)


def test_uninitialised_memory_is_nan_under_the_checks(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CHECK", "1")
    assert np.isnan(cuda.device_array(5, np.float32).copy_to_host()).all()
    same(cuda.device_array(3, np.int32).copy_to_host(), np.full(3, -1, np.int32))


# Indexing and views


def test_an_element_comes_to_the_host():
    array = cuda.to_device(numbers(3, 4))
    element = array[1, -2]
    assert type(element) is np.float32 and element == 6
    assert cuda.to_device(numbers())[()] == 0
    with pytest.raises(IndexError, match="out of bounds"):
        array[3, 0]
    with pytest.raises(IndexError, match="too many indices"):
        array[0, 0, 0]


def test_slices_are_views():
    array, expected = cuda.to_device(numbers(4, 6)), numbers(4, 6)
    part = array[1:3, ::2]
    assert isinstance(part, DeviceNDArray) and part.strides == (24, 8)
    part[0] = -1
    expected[1:3, ::2][0] = -1
    same(array.copy_to_host(), expected)
    same(part.copy_to_host(), expected[1:3, ::2].copy())
    same(array[...].copy_to_host(), expected)
    same(array[-1].copy_to_host(), expected[-1])
    assert array[2:2].copy_to_host().shape == (0, 6)


@pytest.mark.parametrize("item", [[0, 1], np.array([0, 1]), np.array([True, False]), None, "x", 1.0, True], ids=str)
def test_other_indices_are_refused(item):
    array = cuda.to_device(numbers(2, 2))
    message = (
        "on the host, a device array is indexed by integers, slices and '...'.*copy_to_host.. first, or index inside"
    )
    with pytest.raises(DeviceArrayTypeError, match=message):
        array[item]
    with pytest.raises(DeviceArrayTypeError, match=message):
        array[0, item] = 1


def random_index(generator, shape):
    """Integers, slices of any step, and perhaps an ellipsis."""
    parts = []
    for n in shape[: generator.integers(1, len(shape) + 1)]:
        start, stop = sorted(generator.integers(0, n + 1, 2).tolist())
        choices = [slice(None), slice(start, stop), slice(start - n, None, 2), slice(stop, None, -1)]
        if n:
            choices.append(int(generator.integers(-n, n)))
        parts.append(choices[generator.integers(len(choices))])
    if generator.integers(3) == 0:
        parts.append(Ellipsis)
    return tuple(parts)


def test_indices_mean_what_they_mean_in_numpy(seed):
    generator = np.random.default_rng(seed)
    for _ in range(200):
        shape = tuple(generator.integers(0, 5, generator.integers(1, 4)).tolist())
        array, expected = cuda.device_array(shape, np.int32), np.zeros(shape, np.int32)
        array.host[...] = 0
        written = np.zeros(shape, bool)
        for value in (1, 2):
            index = random_index(generator, shape)
            part = np.full(expected[index].shape, value)
            array[index] = part
            expected[index] = part
            written[index] = True
        found = array[index]
        found = found.host if isinstance(found, DeviceNDArray) else found
        np.testing.assert_array_equal(found, expected[index], strict=True)
        np.testing.assert_array_equal(array.copy_to_host(), expected, strict=True)
        known = array.allocation.initialised
        known = np.full(shape, known) if isinstance(known, bool) else known.reshape(*shape, 4).all(-1)
        np.testing.assert_array_equal(known, written)


def test_assignment_broadcasts_and_converts():
    array, expected = cuda.device_array((3, 4), np.int32), np.zeros((3, 4), np.int32)
    array[:] = 0
    array[1:, 1] = cuda.to_device(np.array([7, 8], np.int32))
    expected[1:, 1] = [7, 8]
    array[0] = np.array([1.9, 2.9, -3.9, 4])
    expected[0] = [1, 2, -3, 4]
    array[2, 3] = 5.5
    expected[2, 3] = 5
    array[1, ...] = [9]
    expected[1] = 9
    same(array.copy_to_host(), expected)


def test_assignment_refuses_what_does_not_fit():
    array = cuda.device_array((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"could not broadcast input array from shape \(3,\) into shape \(3,4\)"):
        array[:] = np.ones(3)
    with pytest.raises(ValueError, match="could not broadcast"):
        array[0] = np.ones((2, 4))


def test_iteration_yields_rows_and_elements():
    rows = list(cuda.to_device(numbers(2, 3)))
    same(rows[1].copy_to_host(), numbers(2, 3)[1])
    assert list(cuda.to_device(numbers(3))) == [0, 1, 2]
    assert len(cuda.to_device(numbers(5, 2))) == 5
    with pytest.raises(TypeError, match=r"len\(\) of unsized object"):
        len(cuda.to_device(numbers()))


def test_numpy_copies_a_device_array_to_the_host():
    array = cuda.to_device(numbers(2, 3))
    same(np.asarray(array), numbers(2, 3))
    same(np.asarray(array, np.float64), numbers(2, 3, dtype=np.float64))


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a + 1,
        lambda a: 2 * a,
        lambda a: np.ones((2, 2)) + a,
        lambda a: np.float32(2) * a,
        lambda a: a @ a,
        lambda a: -a,
        lambda a: a < 0,
        lambda a: operator.iadd(a, 1),
    ],
)
def test_the_host_does_not_compute_with_device_arrays(operation):
    with pytest.raises(DeviceArrayTypeError, match="the host does not compute.*copy_to_host.. first, or use a kernel"):
        operation(cuda.to_device(numbers(2, 2)))


def test_reshape_and_ravel_are_views():
    array = cuda.to_device(numbers(4, 6))
    same(array.reshape(2, -1, 3).copy_to_host(), numbers(2, 4, 3))
    same(array.reshape((24,)).copy_to_host(), numbers(24))
    same(array.ravel().copy_to_host(), numbers(24))
    array.reshape(24)[0] = 50
    assert array[0, 0] == 50
    fortran = cuda.to_device(numbers(2, 3, order="F"))
    same(fortran.ravel(order="F").copy_to_host(), numbers(2, 3).ravel(order="F"))
    with pytest.raises(ValueError, match="Unable to avoid creating a copy while reshaping"):
        fortran.reshape(6)
    with pytest.raises(ValueError, match="Unable to avoid creating a copy while reshaping"):
        array[:, :4:2].ravel()
    with pytest.raises(ValueError, match="cannot reshape array of size 24"):
        array.reshape(5, 5)


def test_view_and_squeeze():
    array = cuda.to_device(numbers(2, 3))
    same(array.view(np.int32).copy_to_host(), numbers(2, 3).view(np.int32))
    same(array.view(np.uint8).copy_to_host(), numbers(2, 3).view(np.uint8))
    with pytest.raises(ValueError, match="the last axis must be contiguous"):
        cuda.to_device(numbers(2, 3, order="F")).view(np.uint8)
    assert array.reshape(1, 6, 1).squeeze().shape == (6,)
    assert array.reshape(1, 6, 1).squeeze(axis=0).shape == (6, 1)


def test_transpose_copies_as_numba_does():
    array = cuda.to_device(numbers(2, 3))
    same(array.T.copy_to_host(), np.ascontiguousarray(numbers(2, 3).T))
    assert array.transpose((1, 0)).shape == (3, 2)
    for refused, axes in ((array.reshape(2, 3, 1), None), (array, (0, 2))):
        with pytest.raises(DeviceArrayError, match="transpose swaps the dims of a 2-D device array"):
            refused.transpose(axes)


def test_records_come_to_the_host_as_arrays():
    expected = np.zeros(3, RECORD)
    expected["n"] = [4, 5, 6]
    array = cuda.to_device(expected)
    np.testing.assert_array_equal(array[1:].copy_to_host(), expected[1:])
    assert array[1] == expected[1]


# Pinned, mapped, managed


@pytest.mark.parametrize("make", [cuda.mapped_array, cuda.managed_array])
def test_mapped_arrays_are_host_arrays_and_device_arrays(make):
    array = make((2, 3), np.float32)
    array[:] = numbers(2, 3)
    assert isinstance(array, np.ndarray) and cuda.is_cuda_array(array) and cuda.is_cuda_array(array[1])
    assert isinstance(array.sum(), np.float32)
    assert cuda.to_device(array) is array


def test_pinned_arrays_are_plain_arrays():
    array = cuda.pinned_array((2, 3), np.int16, order="F")
    assert type(array) is np.ndarray and array.strides == (2, 4) and not cuda.is_cuda_array(array)
    like = cuda.pinned_array_like(array)
    assert (like.shape, like.strides, like.dtype) == (array.shape, array.strides, array.dtype)
    assert cuda.mapped_array_like(array).strides == (2, 4)
    with cuda.pinned(array, like):
        assert cuda.mapped_array_like(array).shape == (2, 3)


# What is a device array


def test_recognising_device_arrays():
    array = cuda.to_device(numbers(3))
    assert cuda.is_cuda_array(array) and not cuda.is_cuda_array(numbers(3))
    assert isinstance(array, cuda.cudadrv.devicearray.DeviceNDArray)
    assert cuda.as_cuda_array(array) is array
    assert not hasattr(array, "__cuda_array_interface__")


def test_as_cuda_array_takes_objects_that_have_one():
    class Tensor:
        array = cuda.to_device(numbers(3))

        def __hostcuda_array__(self):
            return self.array

    assert cuda.as_cuda_array(Tensor()) is Tensor.array


def test_as_cuda_array_refuses_others():
    with pytest.raises(DeviceArrayTypeError, match="ndarray is not an array of the host executor; to_device copies"):
        cuda.as_cuda_array(numbers(3))


# Which bytes were written


def test_transfers_initialise_what_they_write():
    array = cuda.device_array((4, 3), np.float32)
    array[1:3, ::2] = 1
    mask = np.zeros((4, 3), bool)
    mask[1:3, ::2] = True
    written = array.allocation.initialised
    assert written.dtype == np.bool_ and written.shape == (48,)
    np.testing.assert_array_equal(written.reshape(4, 3, 4).all(-1), mask)
    np.testing.assert_array_equal(written.reshape(4, 3, 4).any(-1), mask)
    array.copy_to_device(numbers(4, 3))
    assert array.allocation.initialised is True
    assert cuda.to_device(numbers(2)).allocation.initialised is True
    whole = cuda.device_array((4, 3), np.float32, order="F")
    whole[:] = 2
    assert whole.allocation.initialised is True


def test_device_memory_is_neither_pickled_nor_deep_copied():
    array = cuda.to_device(numbers(3))
    for operation in (copy.deepcopy, pickle.dumps):
        with pytest.raises(DeviceArrayTypeError, match="device memory cannot be pickled or deep-copied: copy_to_host"):
            operation(array)
    assert copy.copy(array).allocation is array.allocation


# Several devices


def test_devices_do_not_reach_each_others_memory(two_devices):
    here = cuda.to_device(numbers(3))
    with cuda.gpus[1]:
        there = cuda.to_device(numbers(3))
    assert (here.allocation.device, there.allocation.device) == (0, 1)
    with pytest.raises(CudaDeviceError, match="copy of <DeviceNDArray .* on device 1 .* to device 0: copy_to_host"):
        here.copy_to_device(there)
    with pytest.raises(CudaDeviceError, match="on device 0 .* to device 1"):
        there[:] = here
    there.copy_to_device(here.copy_to_host())
    same(there.copy_to_host(), numbers(3))


def test_views_and_transposes_stay_on_their_device(two_devices):
    with cuda.gpus[1]:
        array = cuda.to_device(numbers(2, 3))
    found = [array[0], array.reshape(6), array.T, array.view(np.int32)]
    assert [view.allocation.device for view in found] == [1] * 4
