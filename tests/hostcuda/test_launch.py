"""Launching: configurations, arguments, conversions, and what is refused."""

import threading
import warnings
from collections import namedtuple

import ml_dtypes
import numpy as np
import pytest

from miniflow.hostcuda import CudaDeviceError, KernelArgumentError, KernelLaunchError, UnsupportedKernelError
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.errors import DeviceArrayError, DeviceArrayTypeError, ImplicitCopyWarning, KernelReturnError
from miniflow.hostcuda.numba_cuda import package


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImplicitCopyWarning)
        yield


@cuda.jit
def fill(out, value):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = value


@cuda.jit
def anything(x):
    pass


@cuda.jit
def two(x, y):
    pass


@cuda.jit(device=True)
def square(x):
    return x * x


@pytest.fixture(autouse=True)
def not_compiled():
    """Kernels of this module forget what was compiled, or only recorded, for them."""
    yield
    for kernel in (fill, anything, two):
        for known in (kernel.compiled, kernel.overloads, kernel._configurations):
            known.clear()


# Configurations


@pytest.mark.parametrize(
    ("configuration", "grid", "block", "axes"),
    [
        ((2, 32), (2, 1, 1), (32, 1, 1), 1),
        ((np.int64(2), (32,)), (2, 1, 1), (32, 1, 1), 1),
        (((2, 3), (4, 5)), (2, 3, 1), (4, 5, 1), 2),
        (((1, 2, 3), (1024, 1, 1)), (1, 2, 3), (1024, 1, 1), 1),
        (((2**31 - 1, 65535, 65535), (1, 1, 64)), (2**31 - 1, 65535, 65535), (1, 1, 64), 3),
        (([2, 3], [4]), (2, 3, 1), (4, 1, 1), 1),
    ],
)
def test_configurations(recorder, configuration, grid, block, axes):
    @cuda.jit
    def kernel():
        pass

    kernel[configuration]()
    assert (recorder.last.grid, recorder.last.block, recorder.last.shared) == (grid, block, 0)
    assert recorder.compiled == [("kernel", (), axes)]


def test_block_sizes_that_are_compiled_for(recorder):
    @cuda.jit
    def kernel(x):
        pass

    sizes = [(64, 1, 1), (16, 4, 1), (8, 1, 1), (2, 3, 4), (64, 1, 1), (32, 1, 1), (96, 1, 1), (8, 1, 1), (4, 8, 1)]
    for block in sizes:
        kernel[1, block](1)
    kernel[1, 96](1.5)
    assert recorder.sizes == [*sizes[:4], None, None, (96, 1, 1)]

    kernel.py_func.__module__ = "miniflow.kernels.reduce"
    of_the_package = cuda.jit(kernel.py_func)
    of_the_package[1, 64](1)
    of_the_package[1, 96](1)
    assert recorder.sizes[7:] == [None]


def test_stream_and_shared_memory_of_a_launch(recorder):
    stream = cuda.stream()
    launch = fill[4, 64, stream, 1024]
    assert (launch.griddim, launch.blockdim, launch.stream, launch.sharedmem) == ((4, 1, 1), (64, 1, 1), stream, 1024)
    assert repr(launch) == f"<fill[(4, 1, 1), (64, 1, 1), {stream!r}, 1024]>"
    launch(cuda.device_array(3), 1)
    assert recorder.last.shared == 1024
    assert fill[4, 64, 0, 227 * 1024].stream is None and fill[4, 64, cuda.default_stream()].stream is None


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ((1, 1025), r"the block has 1025 in x, got 1025; expected 1 to 1,024"),
        ((1, (1, 1, 65)), r"the block has 65 in z, got \(1, 1, 65\); expected 1 to 64"),
        ((1, (32, 33)), "a block of 1,056 threads; at most 1,024, make the grid larger"),
        ((0, 32), "the grid has 0 in x, got 0; expected 1 to 2,147,483,647"),
        (((1, 65536), 32), r"the grid has 65536 in y, got \(1, 65536\); expected 1 to 65,535"),
        ((2**31, 32), "the grid has 2147483648 in x"),
        ((1, -1), "the block has -1 in x"),
        (((1, 1, 1, 1), 32), r"the grid has 1, 2 or 3 dimensions, got \(1, 1, 1, 1\)"),
        (((), 32), r"the grid has 1, 2 or 3 dimensions, got \(\)"),
        ((1, 32, 0, 227 * 1024 + 1), r"232,449 bytes of dynamic shared memory; a block has at most 232,448 \(227 KB\)"),
        ((1, 32, 0, -4), "-4 bytes of dynamic shared memory"),
        (32, "takes grid and block, then perhaps a stream and bytes of dynamic shared memory; got 32"),
        ((1, 2, 0, 0, 0), r"takes grid and block.*got \(1, 2, 0, 0, 0\)"),
    ],
)
def test_launches_that_no_gpu_would_do(configuration, message):
    with pytest.raises(KernelLaunchError, match=f"fill.*{message}"):
        fill[configuration]


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ((7 / 2, 32), r"the sizes of a grid are integers \(divide with //\), got 3.5"),
        ((64 / 32, 32), r"the sizes of a grid are integers \(divide with //\), got 2.0"),
        (((2.0, 1), 32), r"the sizes of a grid are integers \(divide with //\), got \(2.0, 1\)"),
        ((None, 32), "the sizes of a grid are integers .*, got None"),
        ((1, (32, True)), "the sizes of a block are integers"),
        ((1, 32, "stream"), "expected a stream or 0 for the third, got 'stream'"),
        ((1, 32, 0, 1.5), "bytes of dynamic shared memory are an integer, got 1.5"),
    ],
)
def test_configurations_of_other_types(configuration, message):
    for equal in ((2, 32), ((2, 1), 32), (1, (32, 1))):
        assert fill[equal].kernel is fill  # kept, but not for what only equals it
    with pytest.raises(KernelArgumentError, match=f"fill.*{message}"):
        fill[configuration]


def test_more_shared_memory_than_a_block_has(recorder):
    recorder.resources = {"shared_bytes": 64 * 1024}
    with pytest.raises(KernelLaunchError, match="anything: 65,536 bytes of shared arrays; at most 49,152 .48 KB. have"):
        anything[1, 32](1)
    recorder.resources = {"shared_bytes": 40 * 1024}
    anything[1, 32, 0, 187 * 1024](1.5)
    with pytest.raises(KernelLaunchError, match=r"232,449 bytes of shared arrays and dynamic .*227 KB\)"):
        anything[1, 32, 0, 187 * 1024 + 1](1.5)
    assert len(recorder.launches) == 1


def test_a_cooperative_grid_larger_than_a_gpu(recorder):
    recorder.resources = {"shared_bytes": 0, "cooperative": True}
    most = anything.compile("(int64,)").max_cooperative_grid_blocks(256)
    assert most == 132 * 8 and anything.compile("(int64,)").max_cooperative_grid_blocks((32, 32), 128 * 1024) == 132
    anything[most, 256](1)
    with pytest.raises(
        KernelLaunchError, match="anything: a grid of 1,057 blocks, which wait for each other; a GPU runs"
    ):
        anything[most + 1, 256](1)
    recorder.resources = {"shared_bytes": 0, "cooperative": False}
    two[10**6, 256](1, 2)
    assert [launch.grid[0] for launch in recorder.launches] == [most, 10**6]


def test_a_configuration_is_made_once_and_few_are_kept():
    assert fill[3, 32] is fill[3, 32]
    for n in range(1, 300):
        fill[n, 32]
    assert len(fill._configurations) <= 128


def test_calls_without_a_configuration():
    with pytest.raises(
        KernelLaunchError, match=r"fill: a kernel is launched with its configuration: fill\[blocks_per_"
    ):
        fill(cuda.device_array(3), 1)
    with pytest.raises(KernelLaunchError, match="square is a device function: kernels call it.*square.py_func"):
        square(2)
    with pytest.raises(KernelLaunchError, match="square is a device function: it is called by kernels, not launched"):
        square[1, 32]
    assert square.py_func(3) == 9


def test_forall_covers_all_tasks(recorder):
    array = cuda.device_array(1000)
    fill.forall(1000)(array, 1)
    assert (recorder.last.grid, recorder.last.block) == ((4, 1, 1), (256, 1, 1))
    fill.forall(1000, tpb=100, sharedmem=8)(array, 1)
    assert (recorder.last.grid, recorder.last.block, recorder.last.shared) == ((10, 1, 1), (100, 1, 1), 8)
    fill.forall(0)(array, 1)
    assert len(recorder.launches) == 2
    with pytest.raises(KernelLaunchError, match="the grid has 0 in x"):
        fill.forall(-1)


# Arguments

Point = namedtuple("Point", "x y")
Pair = np.dtype([("a", np.int32), ("b", np.float32)])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "int64"),
        (-(2**63), "int64"),
        (2**63, "uint64"),
        (2.5, "float64"),
        (True, "bool"),
        (1j, "complex128"),
        (None, "none"),
        (np.float32(1), "float32"),
        (np.uint8(1), "uint8"),
        (np.bool_(True), "bool"),
        (np.complex64(1), "complex64"),
        (np.float16(1), "float16"),
        ((1, 2), "UniTuple(int64 x 2)"),
        ((1, 2.0), "Tuple(int64, float64)"),
        ((), "Tuple()"),
        ((np.int8(1), (2.0,)), "Tuple(int8, UniTuple(float64 x 1))"),
        (Point(1, 2), "Point(int64 x 2)"),
    ],
    ids=str,
)
def test_types_of_values(recorder, value, expected):
    @cuda.jit
    def kernel(x):
        pass

    kernel[1, 1](value)
    assert recorder.compiled == [("kernel", (expected,), 1)]
    assert recorder.last.values == [value] and type(recorder.last.values[0]) is type(value)


@pytest.mark.parametrize(
    ("array", "dims", "layout"),
    [
        (np.zeros(5, np.float32), "1", "C"),
        (np.zeros((2, 3), np.float32), "2", "C"),
        (np.zeros((2, 3), np.float32, order="F"), "2", "F"),
        (np.zeros((), np.float32), "0", "C"),
        (np.zeros((0, 3), np.float32), "2", "C"),
    ],
    ids=["1d", "2d", "fortran", "0d", "empty"],
)
def test_types_of_arrays(recorder, array, dims, layout):
    @cuda.jit
    def kernel(x):
        pass

    kernel[1, 1](cuda.to_device(array))
    assert recorder.compiled == [("kernel", (f"array(float32, {dims}d, {layout})",), 1)]


def test_views_and_read_only_arrays_make_few_variants(recorder):
    array = cuda.to_device(np.zeros((4, 6), np.float32))
    anything[1, 1](array)
    anything[1, 1](array[1:])
    read_only = np.zeros((2, 2), np.float32)
    read_only.flags.writeable = False
    anything[1, 1](read_only)
    anything[1, 1](array[:, ::2])
    anything[1, 1](array[:, 1:])
    anything[1, (1, 2)](array)
    compiled = [(types[0], axes) for _, types, axes in recorder.compiled]
    assert compiled == [("array(float32, 2d, C)", 1), ("array(float32, 2d, A)", 1), ("array(float32, 2d, C)", 2)]


def test_records_of_arrays_and_alone(recorder):
    @cuda.jit
    def kernel(x):
        pass

    array = cuda.to_device(np.zeros(3, Pair))
    for value in (array, array[1:], np.zeros(1, Pair)[0]):
        kernel[1, 1](value)
    kinds = [types[0] for _, types, _ in recorder.compiled]
    assert len(kinds) == 2 and "array(Record(a[type=int32" in kinds[0] and kinds[1].startswith("Record(a[type=int32")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "argument 1 is of type list, which kernels do not take; use a tuple, or a NumPy array"),
        ("text", "argument 1 is of type str, which kernels do not take; pass numbers, NumPy or device arrays"),
        (object(), "argument 1 is of type object"),
        (2**64, "argument 1 is 18446744073709551616, which does not fit into 64 bits"),
        ((1, {}), "argument 1 is of type dict"),
        (ml_dtypes.bfloat16(1), "argument 1 is of type ml_dtypes.bfloat16"),
        (np.zeros(3, ml_dtypes.bfloat16), r"arrays of dtype bfloat16; pass array.view\(numpy.uint16\)"),
        (np.zeros(3, ">f4"), "kernels cannot use arrays of dtype >f4"),
        (cuda.In([1]), "argument 1 is of type list, which kernels do not take; use a tuple, or a NumPy array"),
    ],
)
def test_values_that_kernels_do_not_take(recorder, value, message):
    with pytest.raises(KernelArgumentError, match=message):
        anything[1, 1](value)


def test_foreign_arrays_are_refused(recorder):
    class OnGpu:
        __cuda_array_interface__ = {}

    class Tensor:
        def __array__(self):
            return np.zeros(3)

    with pytest.raises(KernelArgumentError, match="OnGpu, which kernels do not take; pass numbers, NumPy or device"):
        anything[1, 1](OnGpu())
    with pytest.raises(KernelArgumentError, match="Tensor, which kernels do not take; pass numpy.asarray"):
        anything[1, 1](Tensor())


def test_the_number_of_arguments(recorder):
    with pytest.raises(KernelArgumentError, match=r"fill takes 2 arguments, \(out, value\); got 1"):
        fill[1, 1](cuda.device_array(3))
    with pytest.raises(KernelArgumentError, match="got 3"):
        fill[1, 1](cuda.device_array(3), 1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'value'"):
        fill[1, 1](cuda.device_array(3), value=1)


def test_a_kernel_that_returns_a_value():
    @cuda.jit
    def kernel(x):
        if x > 0:
            return
        for _ in range(3):
            return x + 1

    line = kernel.py_func.__code__.co_firstlineno + 5
    with pytest.raises(
        KernelReturnError, match=f"test_launch.py:{line}: the kernel kernel returns a value; write results"
    ):
        kernel[1, 1](1)


def test_returning_none_is_returning_nothing(recorder):
    @cuda.jit
    def kernel(x):
        def inner(y):
            return y

        if x:
            return None
        return

    kernel[1, 1](1)
    assert len(recorder.launches) == 1


def test_arrays_of_another_device_are_refused(two_devices, recorder):
    with cuda.gpus[1]:
        array = cuda.device_array(3)
        stream = cuda.stream()
        anything[1, 1, stream](array)
    for value in (array, (array,), cuda.InOut(array)):
        with pytest.raises(CudaDeviceError, match=r"on device 1 .*was passed to a kernel on device 0; .*gpus\[1\]"):
            anything[1, 1](value)
    with pytest.raises(CudaDeviceError, match="anything: <Stream of device 1 .*> used while device 0 is current"):
        anything[1, 1, stream](1)


# NumPy arguments


def test_a_numpy_argument_is_written_back(recorder):
    recorder.action = lambda x: x.__setitem__(slice(None), 7)
    host = np.zeros(3)
    anything[1, 1](host)
    np.testing.assert_array_equal(host, [7, 7, 7])
    assert recorder.last.values[0] is host  # nobody can tell, so it is not copied


def test_overlapping_numpy_arguments_are_apart_as_on_a_gpu(recorder):
    def action(x, y):
        x[:] = 1
        y[0] += 10

    recorder.action = action
    host = np.zeros(3)
    two[1, 1](host, host)
    np.testing.assert_array_equal(host, [10, 0, 0])  # the second argument's copy is written back last
    apart = np.zeros(6)
    two[1, 1](apart[:3], apart[3:])
    np.testing.assert_array_equal(apart, [1, 1, 1, 10, 0, 0])
    assert recorder.last.values[1].base is apart


def test_read_only_and_in_arguments_keep_their_values(recorder):
    recorder.action = lambda x: x.__setitem__(slice(None), 7)
    host = np.zeros(3)
    anything[1, 1](cuda.In(host))
    host.flags.writeable = False
    anything[1, 1](host)
    np.testing.assert_array_equal(host, [0, 0, 0])
    assert [launch.values[0].tolist() for launch in recorder.launches] == [[7, 7, 7]] * 2


def test_out_and_inout_arguments_are_written_back(recorder):
    recorder.action = lambda x, y: (x.__setitem__(0, 7), y.__setitem__(1, 8))
    one, other = np.zeros(2), np.ones(2)
    two[1, 1](cuda.Out(one), cuda.InOut(other))
    np.testing.assert_array_equal([one, other], [[7, 0], [1, 8]])


def test_numpy_arguments_with_gaps_or_objects_are_refused(recorder):
    with pytest.raises(DeviceArrayTypeError, match="an array of dtype object cannot lie on a device"):
        anything[1, 1](np.array([None]))
    with pytest.raises(DeviceArrayError, match="has gaps or repeats elements: it cannot be transferred"):
        anything[1, 1](np.zeros((3, 4))[:, ::2])


def test_arrays_in_tuples_are_converted(recorder):
    recorder.action = lambda x: x[1].__setitem__(0, 5)
    array, host = cuda.to_device(np.zeros(2)), np.zeros(2)
    anything[1, 1]((array, host, 3))
    assert recorder.last.values[0][0] is array.host and host[0] == 5
    anything[1, 1](Point(array, host))
    assert type(recorder.last.values[0]) is Point


def test_objects_that_have_a_device_array_are_used_in_place(recorder):
    class Tensor:
        array = cuda.to_device(np.zeros(3))

        def __hostcuda_array__(self):
            return self.array

    anything[1, 1](Tensor())
    assert recorder.last.values[0] is Tensor.array.host


def test_mapped_arrays_are_used_in_place(recorder):
    recorder.action = lambda x: x.__setitem__(slice(None), 7)
    array = cuda.mapped_array(3)
    array[:] = 0
    anything[1, 1](array[1:])
    assert array.tolist() == [0, 7, 7] and type(recorder.last.values[0]) is np.ndarray
    anything[1, 1](np.array(array))
    assert array.tolist() == [0, 7, 7]


def test_implicit_copies_warn_at_the_callers_line(recorder, monkeypatch):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        two[1, 1](1, np.zeros(3))
        two[1, 1](cuda.to_device(np.zeros(3)), cuda.InOut(np.zeros(3)))
    assert [warning.category for warning in caught] == [ImplicitCopyWarning]
    assert caught[0].filename == __file__
    assert "argument 2 is a NumPy array: on a GPU it is copied there and back at every launch" in str(caught[0].message)
    monkeypatch.setenv("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anything[1, 1](np.zeros(3))


def test_a_launch_initialises_its_arrays(recorder):
    array = cuda.device_array(3)
    assert array.allocation.initialised is False
    anything[1, 1]((array,))
    assert array.allocation.initialised is True


# Kernels


def test_what_a_kernel_says_of_itself(recorder):
    assert repr(fill) == "<kernel fill(out, value)>" and repr(square) == "<device function square(x)>"
    assert fill.__name__ == "fill" and not fill.device and square.device

    @cuda.jit(fastmath=True, debug=False, opt=True, lineinfo=True, cache=True, max_registers=32, inline="always")
    def kernel(x):
        """Does nothing."""

    assert kernel.__doc__ == "Does nothing." and kernel.options["max_registers"] == 32
    assert kernel.options["check"] is False and kernel.signatures == [] and kernel.overloads == {}
    with pytest.raises(
        KernelLaunchError, match="the source depends on the argument types: launch the kernel first, or"
    ):
        kernel.inspect_host()
    kernel[1, 32](1)
    kernel[1, 32](1.5)
    kernel[2, 64](1)
    assert [str(types[0]) for types in kernel.signatures] == ["int64", "float64"] and len(kernel.overloads) == 2
    assert kernel.inspect_host() == "# kernel for int64, 1 axes\n\n# kernel for float64, 1 axes"
    assert kernel.inspect_host("void(float32[:])") == "# kernel for array(float32, 1d, A), 1 axes"
    assert kernel.compile("(int64,)") is kernel.overloads[kernel.signatures[0]]
    kinds = [(str(types[0]), axes) for _, types, axes in recorder.compiled]
    assert kinds == [("int64", 1), ("float64", 1), ("int64", 1), ("array(float32, 1d, A)", 1)]


def test_what_a_kernel_needs(recorder):
    recorder.resources = {"shared_bytes": 1024, "local_bytes": 64, "const_bytes": 16}
    anything[1, 1](1)
    (types,) = anything.signatures
    assert anything.get_shared_mem_per_block() == {types: 1024} and anything.get_shared_mem_per_block(types) == 1024
    assert anything.get_local_mem_per_thread(types) == 64 and anything.get_const_mem_size("(int64,)") == 16
    assert anything.overloads[types].shared_mem_per_block == 1024
    assert anything.get_max_threads_per_block(types) == 1024
    with pytest.raises(UnsupportedKernelError, match="anything: registers are assigned by NVIDIA's assembler"):
        anything.get_regs_per_thread(types)


def test_a_kernel_for_the_types_of_arguments(recorder):
    array = cuda.to_device(np.zeros(3, np.float32))
    special = two.specialize(array, 1)
    assert [tuple(map(str, types)) for types in special.signatures] == [("array(float32, 1d, C)", "int64")]
    special[1, 32](array, np.int8(2))
    assert recorder.compiled == [("two", ("array(float32, 1d, C)", "int64"), 1)]
    with pytest.raises(KernelArgumentError, match="two: no matching signature"):
        special[1, 1](cuda.to_device(np.zeros(3)), 2)


@pytest.mark.ptx
def test_names_of_numba_cuda_itself_are_refused():
    real = pytest.importorskip("numba.cuda", reason="numba without CUDA")
    draw = pytest.importorskip("numba.cuda.random").xoroshiro128p_uniform_float32
    with pytest.raises(UnsupportedKernelError, match="real is of numba.cuda.*write `from miniflow.hostcuda"):

        @cuda.jit
        def kernel(out):
            out[real.grid(1)] = 1

    with pytest.raises(UnsupportedKernelError, match="draw is of numba.cuda.* and cuda.random.xoroshiro128p_uniform"):

        @cuda.jit(device=True)
        def number(states, i):
            return draw(states, i)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"speed": 11}, KernelArgumentError, "@cuda.jit has no option speed; it has boundscheck, cache, check"),
        ({"link": ["file.cu"]}, UnsupportedKernelError, "link=...*cannot run PTX or CUDA C"),
    ],
)
def test_options_that_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        cuda.jit(**options)


def test_what_can_be_decorated():
    for given in (fill, 3):
        with pytest.raises(TypeError, match="invalid signature"):
            cuda.jit(given)


def test_the_environment_turns_the_checks_on(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CHECK", "1")
    assert cuda.jit(lambda: None).watched
    assert not cuda.jit(check=False)(lambda: None).watched
    monkeypatch.setenv("MINIFLOW_CHECK", "0")
    assert not cuda.jit(lambda: None).watched
    assert cuda.jit(profile=True)(lambda: None).watched


def test_threads_launch_at_once_and_compile_once(recorder):
    @cuda.jit
    def kernel(x, y):
        pass

    barrier, errors = threading.Barrier(8), []

    def program():
        array = cuda.device_array(3)
        barrier.wait()
        try:
            for _ in range(50):
                kernel[2, 32](array, 1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=program) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(recorder.launches) == 400 and len(recorder.compiled) == 1


@pytest.mark.ptx
def test_the_ptx_for_a_gpu():
    if not package().installed:
        pytest.skip(f"{package()} is not installed")

    @cuda.jit
    def kernel(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 1

    text = kernel.inspect_asm("void(float32[:])", cc=(9, 0))
    assert ".target sm_90" in text and ".entry" in text and "1065353216" in text  # the bits of 1.0f
    kernel[1, 32](np.zeros(3))
    ((types, text),) = kernel.inspect_asm().items()
    assert types == kernel.signatures[0] and ".target sm_75" in text


# With the compiler


def test_a_kernel_runs():
    array = cuda.to_device(np.full(70, np.nan, np.float32))
    fill[3, 32](array, 2.5)
    np.testing.assert_array_equal(array.copy_to_host(), np.full(70, 2.5, np.float32))
    host = np.full(5, -1, np.int32)
    fill[1, 32](host, 3)
    np.testing.assert_array_equal(host, np.full(5, 3, np.int32))
    assert "out" in fill.inspect_host() and "for " in fill.inspect_host()


def test_the_compiler_tells_what_a_kernel_needs():
    table = np.arange(4.0)

    @cuda.jit
    def kernel(out):
        tile = cuda.shared.array(32, np.float32)
        own = cuda.local.array(3, np.int16)
        known = cuda.const.array_like(table)
        own[0] = 1
        tile[cuda.threadIdx.x] = own[0] + known[1]
        cuda.cg.this_grid().sync()
        out[cuda.grid(1)] = tile[cuda.threadIdx.x]

    @cuda.jit
    def large(out):
        tile = cuda.shared.array(64 * 1024, np.int8)
        tile[0] = 1
        out[0] = tile[0]

    out = np.zeros(32)
    kernel[1, 32](out)
    (types,) = kernel.signatures
    assert kernel.get_shared_mem_per_block(types) == 128 and kernel.get_local_mem_per_thread(types) == 6
    assert kernel.get_const_mem_size(types) == 32
    with pytest.raises(KernelLaunchError, match="which wait for each other"):
        kernel[10**6, 32](out)
    with pytest.raises(KernelLaunchError, match="large: 65,536 bytes of shared arrays"):
        large[1, 32](out)


def test_all_kinds_of_arguments_reach_a_kernel():
    @cuda.jit
    def kernel(out, scale, flag, pair, record, columns, nothing):
        i = cuda.grid(1)
        if i < out.size and flag and nothing is None:
            out[i] = scale * pair[0] + record["b"] + columns[i, 0] + pair[1][i]

    record = np.zeros(1, Pair)[0]
    record["b"] = 0.5
    offsets = np.arange(5.0)
    columns = cuda.to_device(np.arange(15.0).reshape(5, 3))[:, 1:]
    out = np.full(5, np.nan)
    kernel[1, 8](out, np.float32(2), True, (3, offsets), record, columns, None)
    np.testing.assert_array_equal(out, 6 + 0.5 + (3 * np.arange(5.0) + 1) + np.arange(5.0))


def test_a_checked_kernel_sees_device_arrays_and_writes_back():
    @cuda.jit(check=True)
    def kernel(out, values, scale):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = scale * values[i]

    out, values = np.full(5, np.nan), cuda.to_device(np.arange(5.0))
    kernel[1, 8](out, values, 2)
    np.testing.assert_array_equal(out, 2 * np.arange(5.0))
    device = cuda.device_array(5)
    kernel[1, 8](device, values, 3)
    np.testing.assert_array_equal(device.copy_to_host(), 3 * np.arange(5.0))


def test_what_the_checked_executor_gets(monkeypatch):
    calls = []

    def run(configured, given, profile):
        calls.append((configured, given.values, profile))
        record, array, out, scale = given.values
        record["a"] = 7
        out.host[0] = 8
        given.write_back()

    monkeypatch.setattr("miniflow.hostcuda.check.run", run)

    @cuda.jit(check=True)
    def kernel(record, array, out, scale):
        pass

    record, array, out = np.zeros(1, Pair)[0], cuda.device_array(3), np.zeros(2)
    kernel[2, (4, 2), 0, 16](record, array, cuda.Out(out), 2)
    ((configured, arguments, profile),) = calls
    assert configured.kernel is kernel and profile is None
    assert (configured.griddim, configured.blockdim, configured.sharedmem) == ((2, 1, 1), (4, 2, 1), 16)
    assert arguments[1] is array and array.allocation.initialised is False
    assert arguments[2].allocation.initialised is False and arguments[3] == 2
    assert record["a"] == 7 and out[0] == 8


def test_a_kernel_writes_to_records():
    @cuda.jit
    def kernel(array, record):
        record["a"] = array[0]["a"] + 2
        array[1]["b"] = record["b"]

    array = np.zeros(2, Pair)
    array["a"] = 3
    record = np.zeros(1, Pair)[0]
    record["b"] = 0.5
    kernel[1, 1](array, record)
    assert record["a"] == 5 and array[1]["b"] == 0.5
    on_device = cuda.to_device(array)
    kernel[1, 1](on_device, record)
    assert record["a"] == 5 and on_device.copy_to_host()[1]["b"] == 0.5


def test_a_profiled_kernel_keeps_its_profile():
    @cuda.jit(profile=True)
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    x = np.zeros(40)
    kernel[2, 32](x)
    np.testing.assert_array_equal(x, np.ones(40))
    assert type(kernel.profile).__name__ == "Profile"
