"""The Tensor itself: metadata, and the exchange with Python, NumPy and DLPack."""

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.errors import ArgumentTypeError, AutogradError, DeviceError, DTypeError, PickleError, ShapeError

# metadata


def test_metadata():
    x = flow.zeros(2, 3, 4, dtype=flow.float64)
    assert x.shape == x.size() == (2, 3, 4) and isinstance(x.shape, flow.Size)
    assert x.size(1) == x.size(-2) == 3
    assert x.ndim == x.dim() == x.ndimension() == 3
    assert x.numel() == x.nelement() == 24
    assert x.element_size() == x.itemsize == 8 and x.nbytes == 192
    assert x.stride() == (12, 4, 1) and x.stride(0) == 12
    assert x.dtype is flow.float64 and x.is_floating_point()
    assert x.device == flow.device("cpu") == flow.device("cpu:0") and str(x.device) == "cpu"
    assert x.is_cpu and not x.is_cuda and not x.is_xpu and x.get_device() == -1
    assert x.is_signed() and not x.is_complex() and not x.byte().is_signed() and x.int().is_signed()
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous()
    assert x.storage_offset() == 0 and x[1, 2, 1:].storage_offset() == 21
    assert x.requires_grad is False and x.is_leaf and x.grad_fn is None and x.grad is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_views_have_the_storage_of_their_tensor(device):
    x = flow.zeros(4, 6, device=device)
    storage = x[1:, ::2].t().untyped_storage()
    assert storage == x.untyped_storage() != flow.zeros(4, 6, device=device).untyped_storage()
    assert storage.data_ptr() == x.data_ptr() and storage.nbytes() >= x.nbytes


def test_size_is_a_tuple_that_knows_its_elements():
    size = flow.ones(2, 3, 4).shape
    assert repr(size) == "miniflow.Size([2, 3, 4])"
    assert size == (2, 3, 4) and hash(size) == hash((2, 3, 4))
    assert size.numel() == 24 and flow.tensor(1.0).shape.numel() == 1
    assert isinstance(size[1:], flow.Size) and size[1:] == (3, 4) and size[-1] == 4
    a, *rest = size
    assert a == 2 and rest == [3, 4]


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "cpu:1", "cpu:x"])
def test_devices_that_do_not_exist(name):
    with pytest.raises(DeviceError, match=f"device '{name}' does not exist"):
        flow.device(name)
    with pytest.raises(DeviceError):
        flow.ones(2).to(name)


def test_the_class_makes_float32():
    for data in ([1, 2], np.array([1, 2]), flow.tensor([1, 2])):
        x = flow.Tensor(data)
        assert type(x) is flow.Tensor and x.dtype is flow.float32 and x.tolist() == [1, 2] and x.is_leaf
    assert flow.Tensor(2, 3).shape == flow.Tensor(flow.Size([2, 3])).shape == (2, 3)
    assert flow.Tensor().shape == (0,) and flow.Tensor(2, device="cuda").device.type == "cuda"
    with pytest.raises(ShapeError):
        flow.Tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"Tensor\(\) got an unexpected keyword argument 'dtype'"):
        flow.Tensor([1], dtype=flow.int32)


def test_a_number_is_formatted_as_one():
    assert f"{flow.tensor(0.5)} {flow.tensor(2):3d} {flow.tensor(True)}" == "0.5   2 True"
    assert f"{flow.tensor([0.5])}" == repr(flow.tensor([0.5]))


# Python


def test_item_and_conversions():
    for value, kind in (
        (2.5, flow.float64),
        (2.5, flow.bfloat16),
        (2.5, flow.float16),
        (3, flow.int8),
        (True, flow.bool),
    ):
        for shape in ((), (1,), (1, 1)):
            item = flow.full(shape, value, dtype=kind).item()
            assert item == value and type(item) is type(value)
    assert int(flow.tensor(3.7)) == 3 and float(flow.tensor(3)) == 3.0
    assert [10, 20, 30][flow.tensor(1)] == 20
    assert f"{flow.tensor(3.14159):.2f}" == "3.14"


def test_item_needs_one_element():
    for shape in ((2,), (0,), (1, 2)):
        with pytest.raises(ShapeError, match=rf"item: got shape \({shape[0]},.*exactly one element"):
            flow.ones(shape).item()


def test_only_integers_are_an_index():
    with pytest.raises(TypeError, match="index: got a tensor of miniflow.float32; expected one integer"):
        [1, 2][flow.tensor(1.0)]


@pytest.mark.parametrize("kind", [flow.float32, flow.bfloat16, flow.float16, flow.int64, flow.uint8])
def test_tolist(kind):
    assert flow.tensor([[1, 2], [3, 4]], dtype=kind).tolist() == [[1, 2], [3, 4]]
    assert type(flow.tensor([1], dtype=kind).tolist()[0]) is (float if kind.is_floating_point else int)
    assert flow.tensor(5, dtype=kind).tolist() == 5
    assert flow.zeros(0, 2, dtype=kind).tolist() == []


def test_truth_is_that_of_one_element():
    assert flow.tensor([[1.0]]) and not flow.tensor(0)
    for shape in ((2,), (0,)):
        with pytest.raises(ShapeError, match=r"bool: a tensor of shape .* has no single truth value; use x.any\(\)"):
            bool(flow.ones(shape))


def test_len_and_iteration():
    x = flow.tensor([[1, 2], [3, 4], [5, 6]])
    assert len(x) == 3 and [row.tolist() for row in x] == [[1, 2], [3, 4], [5, 6]]
    first, _, last = x
    first[0] = 9
    assert x[0, 0].item() == 9 and last.tolist() == [5, 6]
    for use in (len, iter):
        with pytest.raises(ArgumentTypeError, match="0-dim tensor.*x.item"):
            use(flow.tensor(1.0))


def test_tensors_hash_by_identity():
    x, y = flow.ones(2), flow.ones(2)
    assert len({x, y, x}) == 2 and {x: "a"}[x] == "a"


def test_membership_compares_values():
    assert 2 in flow.tensor([1, 2, 3]) and 7 not in flow.tensor([1, 2, 3])


def test_pickling_is_refused():
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(PickleError, match="flow.save"):
            pickle.dumps({"weight": flow.ones(2)}, protocol)


def test_deepcopy():
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    first, second = copy.deepcopy([x, x])
    assert first is second and first is not x
    assert first.requires_grad and first.is_leaf
    assert_same(first, np.array([1, 2], np.float32))
    assert_same(first.grad, np.array([2, 4], np.float32))
    with flow.no_grad():
        first.zero_()
        first.grad.zero_()
    assert x.tolist() == [1.0, 2.0] and x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(AutogradError, match=r"deepcopy: only leaf tensors.*x.detach\(\).clone\(\)"):
        copy.deepcopy(x * 2)


def test_shallow_copy_shares_memory():
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y = copy.copy(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and y.is_leaf and y.requires_grad
    (copy.copy(x * 3) * y).sum().backward()
    assert_same(x.grad, np.array([3, 6], np.float32))
    assert_same(y.grad, np.array([3, 6], np.float32))


# NumPy


def test_numpy_shares_memory():
    x = flow.zeros(2, 3)
    array = x.numpy()
    array[0, 0] = 5
    x[1, 1] = 6
    assert x[0, 0].item() == 5 and array[1, 1] == 6
    x = flow.ones(2, requires_grad=True)
    x.numpy()[:] = 7  # a copy
    assert x.tolist() == [1.0, 1.0]


def test_from_numpy_shares_memory():
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    x = flow.from_numpy(array)
    array[0, 0] = 7
    x[1, 1] = 8
    assert x[0, 0].item() == 7 and array[1, 1] == 8
    assert x.stride() == (3, 2)
    copied = flow.tensor(array)
    array[0, 0] = 9
    assert copied[0, 0].item() == 7


def test_array_protocol():
    x = flow.tensor([[1, 2], [3, 4]])
    assert_same(np.asarray(x), np.array([[1, 2], [3, 4]]))
    assert np.asarray(x).base is x.numpy() or np.shares_memory(np.asarray(x), x.numpy())
    assert_same(np.array(x, dtype=np.float32), np.array([[1, 2], [3, 4]], np.float32))
    assert not np.shares_memory(np.array(x), x.numpy())
    assert np.allclose(x, x.numpy())


V = np.ones(3, np.float32)


@pytest.mark.parametrize(
    "read",
    [
        lambda w: (w * np.exp(w)).sum(),
        lambda w: np.dot(w, V),
        lambda w: np.stack([w, w]),
        lambda w: np.asarray(w),
        lambda w: np.linalg.norm(w),
        lambda w: np.maximum(V, w * 2),
        lambda w: np.add(V, w, out=V.copy()),
    ],
)
def test_numpy_warns_that_it_records_no_gradient(read):
    w = flow.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match=r"tensor of shape \(3,\) that requires grad.* flow.exp .*x.detach") as caught:
        read(w)
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(w.detach())
        with flow.no_grad():
            read(w)


@pytest.mark.filterwarnings("error")
def test_what_reads_a_tensor_that_requires_grad_without_a_warning():
    w = flow.ones(3, requires_grad=True)
    for result in (V + w, V * w, V @ w, np.float32(2) * w, w**V, np.squeeze(w)):
        assert type(result) is flow.Tensor and result.requires_grad
    assert w.numpy().tolist() == flow.tensor(w).tolist() == flow.tensor([w[0], w[1], 1.0]).tolist() == [1.0, 1.0, 1.0]
    for refused in (np.mean, np.sum, np.max, np.std):  # NumPy calls the methods of these names
        with pytest.raises(TypeError, match="argument"):
            refused(w)


def test_a_program_sees_the_warning_of_numpy_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import miniflow as flow, numpy as np\n"
        "w = flow.ones(3, requires_grad=True)\n"
        "for _ in range(3):\n"
        "    (w * np.exp(w)).sum().backward()\n"
    )
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert ran.stderr.count("UserWarning") == 1 and "program.py:4: UserWarning: NumPy gets the values" in ran.stderr


@pytest.mark.parametrize("number", [np.float64(2), np.float32(2), np.int64(2), np.bool_(True), np.array(2.0)])
def test_numpy_numbers_beside_tensors(number):
    x = flow.tensor([1.0, 2.0])
    for y in (number * x, x * number, number + x, x / number, number < x):
        assert isinstance(y, flow.Tensor) and y.shape == (2,)
    assert_same(number * x, np.array([1, 2], np.float32) * np.float32(number))


def test_arrays_beside_tensors():
    array, x = np.array([[1.0], [2.0]]), flow.tensor([1.0, 2.0])
    for y in (array + x, x + array, array * x, array - x, array / x, array // x, array % x, array**x):
        assert isinstance(y, flow.Tensor) and y.shape == (2, 2) and y.dtype is flow.float64
    assert isinstance(array @ flow.ones(1, 2), flow.Tensor)
    assert isinstance(array > x, flow.Tensor) and isinstance(x > array, flow.Tensor)
    array += flow.tensor([1.0])
    assert isinstance(array, np.ndarray | flow.Tensor)


def test_gradients_flow_beside_arrays():
    x = flow.tensor([1.0, 2.0], dtype=flow.float64, requires_grad=True)
    (np.array([3.0, 4.0]) * x).sum().backward()
    assert_same(x.grad, np.array([3.0, 4.0]))


# DLPack


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "int64", "uint8"])
def test_dlpack_out(kind):
    x = flow.ones(2, 3, dtype=getattr(flow, kind))
    array = np.from_dlpack(x)
    assert_same(array, np.ones((2, 3), kind))
    x[0, 0] = 5
    assert array[0, 0] == 5
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "int64", "uint8"])
def test_dlpack_in(kind):
    array = np.arange(6).reshape(2, 3).astype(kind)
    x = flow.from_dlpack(array)
    assert_same(x, array)
    array[0, 0] = 9
    assert x[0, 0].item() == 9


def test_dlpack_refuses_what_cannot_be_exchanged():
    for source in (flow.ones(2, dtype=flow.bfloat16), [1, 2], "text"):
        with pytest.raises(DTypeError, match=f"from_dlpack: got {type(source).__name__}.*flow.tensor"):
            flow.from_dlpack(source)


def test_dlpack_refuses_a_tensor_that_requires_grad():
    with pytest.raises(AutogradError, match="requires grad"):
        np.from_dlpack(flow.ones(2, requires_grad=True))


# leaves


def test_requires_grad_is_for_floating_leaves():
    x = flow.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad = False
    assert not x.requires_grad
    with pytest.raises(AutogradError, match="only floating dtypes have gradients"):
        flow.tensor([1, 2]).requires_grad_()
    with pytest.raises(RuntimeError, match=r"non-leaf.*x.detach\(\)"):
        (flow.ones(2, requires_grad=True) * 2).requires_grad_(False)


def test_grad_takes_only_tensors_that_fit():
    x = flow.ones(2, 3, requires_grad=True)
    x.grad = flow.zeros(2, 3)
    x.grad = None
    with pytest.raises(AutogradError, match=r"got a gradient of shape \(3, 2\).*expected \(2, 3\)"):
        x.grad = flow.zeros(3, 2)
    with pytest.raises(AutogradError, match="expected \\(2, 3\\) and miniflow.float32"):
        x.grad = flow.zeros(2, 3, dtype=flow.float64)
    with pytest.raises(AutogradError, match="grad: got int; expected a Tensor or None"):
        x.grad = 0


def test_detach_shares_memory_without_history():
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).detach()
    assert not y.requires_grad and y.is_leaf
    z = x.detach()
    z[0] = 5
    assert x[0].item() == 5 and x.version == z.version == 1


def test_data():
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    x.data.mul_(3)
    assert x.tolist() == [3.0, 6.0] and x.version == 0
    x.data = flow.tensor([7.0])
    assert x.tolist() == [7.0] and x.requires_grad
    with pytest.raises(DTypeError, match="data: got miniflow.int64; expected miniflow.float32"):
        x.data = flow.tensor([1])


def test_size_and_stride_refuse_dims_that_do_not_exist():
    for ask in (flow.ones(2, 3).size, flow.ones(2, 3).stride):
        with pytest.raises(IndexError):
            ask(2)


def test_in_looks_for_an_element():
    x = flow.tensor([1.0, 3.0])
    assert 3 in x and flow.tensor(1.0) in x and flow.tensor([0.0, 3.0]) in x
    assert 2 not in x and float("nan") not in x and flow.tensor([3.0, 1.0]) not in x
    for value in (None, "3", [3.0]):
        with pytest.raises(TypeError, match=f"in: got a value of type {type(value).__name__}; expected a Tensor or a"):
            value in x  # noqa: B015


def test_constants():
    assert (flow.pi, flow.e, flow.inf) == (np.pi, np.e, np.inf) and np.isnan(flow.nan)


def test_memory_formats_change_nothing():
    x = flow.ones(1, 2, 3, 3)
    for y in (x.contiguous(memory_format="f"), x.to(memory_format="f"), x.clone(memory_format="f")):
        assert y.stride() == x.stride() and y.tolist() == x.tolist()
    assert isinstance(flow.nn.Linear(1, 1).to(memory_format="f"), flow.nn.Linear)
