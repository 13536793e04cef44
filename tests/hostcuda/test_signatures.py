"""Explicit signatures: which arguments they accept, and how these are converted."""

import numpy as np
import pytest
from numba import float32, float64, int32, int64, void

from miniflow.hostcuda import KernelArgumentError
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.errors import KernelReturnError


def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * factor


def one(factor):
    pass


@pytest.mark.parametrize(
    "signature",
    ["void(float32[:], int32)", "(float32[:], int32)", (float32[:], int32), void(float32[:], int32)],
    ids=["text", "arguments", "tuple", "types"],
)
def test_the_ways_to_write_a_signature(recorder, signature):
    kernel = cuda.jit(signature)(scale)
    assert kernel.signatures == [(float32[:], int32)]
    kernel[1, 32](cuda.to_device(np.zeros(3, np.float32)), 2)
    assert recorder.compiled == [("scale", ("array(float32, 1d, A)", "int32"), 1)]
    factor = recorder.last.values[1]
    assert factor == 2 and type(factor) is np.int32


def test_the_source_for_a_signature_needs_no_launch(recorder):
    kernel = cuda.jit(["void(int32)", "void(float32)"])(one)
    assert kernel.inspect_host() == "# one for int32, 1 axes\n\n# one for float32, 1 axes"


def test_options_beside_a_signature():
    kernel = cuda.jit("void(float32)", fastmath=True)(one)
    assert kernel.options["fastmath"] is True and kernel.signatures == [(float32,)]
    device = cuda.jit("float32(float32)", device=True)(one)
    assert device.device and device.signatures == [(float32,)]


@pytest.mark.parametrize(
    ("signature", "value", "expected"),
    [
        (int64, np.uint8(200), np.int64(200)),
        ("uint8", 255, np.uint8(255)),
        (float32, 3, np.float32(3)),
        (float32, 0.1, np.float32(0.1)),
        (float64, np.float32(0.5), np.float64(0.5)),
        ("complex64", 2.5, np.complex64(2.5)),
        ("boolean", True, True),
        (int64, True, np.int64(1)),
    ],
)
def test_numbers_become_the_signatures_type(recorder, signature, value, expected):
    kernel = cuda.jit([(signature,)] if not isinstance(signature, str) else f"void({signature})")(one)
    kernel[1, 1](value)
    found = recorder.last.values[0]
    assert found == expected and type(found) is type(expected)


def test_numbers_that_do_not_fit(recorder):
    kernel = cuda.jit("void(int32)")(one)
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        kernel[1, 1](2.5)
    with pytest.raises(OverflowError, match="2147483648 out of bounds for int32"):
        kernel[1, 1](2**31)


def test_the_best_of_several_signatures_is_taken(recorder):
    kernel = cuda.jit(["void(float64[:], float64)", "void(float32[:], float32)", "void(int64[:], int64)"])(scale)
    for dtype in (np.float32, np.int64, np.float64):
        kernel[1, 32](cuda.to_device(np.zeros(3, dtype)), 2)
    taken = [types[0] for _, types, _ in recorder.compiled]
    assert taken == ["array(float32, 1d, A)", "array(int64, 1d, A)", "array(float64, 1d, A)"]
    exact = cuda.jit(["void(int64)", "void(float32)"])(one)
    exact[1, 1](np.float32(1))
    assert recorder.compiled[-1] == ("one", ("float32",), 1)


def test_arguments_that_no_signature_accepts(recorder):
    kernel = cuda.jit(["void(float32[:], int32)", "void(float32[:,:], int32)"])(scale)
    message = (
        r"scale: no matching signature for arguments \(array\(float64, 1d, C\), int64\); it accepts \(array\(float3"
    )
    with pytest.raises(KernelArgumentError, match=message):
        kernel[1, 32](cuda.to_device(np.zeros(3)), 1)
    contiguous = cuda.jit("void(float32[:, ::1])")(one)
    contiguous[1, 1](cuda.to_device(np.zeros((2, 2), np.float32)))
    with pytest.raises(KernelArgumentError, match="no matching signature"):
        contiguous[1, 1](cuda.to_device(np.zeros((2, 4), np.float32))[:, ::2])


def test_array_variants_share_one_compilation(recorder):
    kernel = cuda.jit("void(float32[:], int32)")(scale)
    array = cuda.to_device(np.zeros(6, np.float32))
    kernel[1, 32](array, 1)
    kernel[1, 32](array[::2], np.int8(1))
    assert len(recorder.compiled) == 1 and len(recorder.launches) == 2


def test_a_signature_has_a_type_for_each_parameter():
    with pytest.raises(KernelArgumentError, match=r"scale takes 2 arguments, \(x, factor\); the signature has 1"):
        cuda.jit("void(float32[:])")(scale)


def test_a_kernel_returns_nothing():
    with pytest.raises(KernelReturnError, match="a kernel returns nothing; write 'void"):
        cuda.jit("float32(float32)")


@pytest.mark.parametrize("signature", ["float32[", "no_such_type(int32)", ["void(int32)", 3]], ids=str)
def test_what_is_not_a_signature(signature):
    with pytest.raises((TypeError, NameError, SyntaxError), match="signature|not defined|never closed"):
        cuda.jit(signature)


def test_the_checked_executor_converts_arguments_too():
    def store(out, value):
        out[0] = value

    out = np.zeros(1)
    cuda.jit("void(float64[:], float32)", check=True)(store)[1, 1](cuda.InOut(out), 0.1)
    assert out[0] == np.float32(0.1)


def test_a_kernel_with_a_signature_runs():
    kernel = cuda.jit("void(float32[:], float32)")(scale)
    array = cuda.to_device(np.arange(5, dtype=np.float32))
    kernel[1, 32](array, 3)
    np.testing.assert_array_equal(array.copy_to_host(), 3 * np.arange(5, dtype=np.float32))
    kernel[1, 32](array[::2], 2)
    np.testing.assert_array_equal(array.copy_to_host(), np.array([0, 3, 12, 9, 24], np.float32))
