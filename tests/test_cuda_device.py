"""Tensors on cuda devices: moving, mixing, views, writing in place, gradients, modules, saving; emulated or real."""

import copy
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from checks import as_array, assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import AutogradError, DeviceError, ShapeError
from miniflow.utils.data import DataLoader, TensorDataset

CUDA = flow.device("cuda")
A = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def run(code, **environment):
    """What a program prints that is run with other environment variables."""
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# devices


def test_names():
    assert flow.device("cuda") == flow.device("cuda:0") == flow.device("cuda", 0) == flow.device(0)
    assert flow.device("cuda") != flow.device("cpu") and hash(flow.device("cuda")) == hash(flow.device(0))
    assert str(flow.device("cuda")) == "cuda:0" and (CUDA.type, CUDA.index) == ("cuda", 0)
    assert flow.device(CUDA) == CUDA
    if flow.cuda.is_emulated():
        assert repr(CUDA) == "device(type='cuda', index=0, emulated)"


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:x", "cuda:1.5", "cuda:0:0", "Cuda", "cud", "", "cpu:"])
def test_wrong_names(name):
    with pytest.raises(DeviceError, match="does not exist"):
        flow.device(name)
    with pytest.raises(DeviceError, match="'cuda:0:1' does not exist"):
        flow.device("cuda:0", 1)


def test_a_device_beyond_the_count():
    count = flow.cuda.device_count()
    with pytest.raises(DeviceError, match=f"device 'cuda:{count}' does not exist: there (is|are) {count} CUDA device"):
        flow.device(f"cuda:{count}")
    if flow.cuda.is_emulated():
        with pytest.raises(DeviceError, match="MINIFLOW_DEVICES"):
            flow.zeros(2).cuda(99)


def test_an_emulated_device_is_not_available():
    assert flow.cuda.is_available() != flow.cuda.is_emulated()
    assert flow.cuda.device_count() >= 1
    assert flow.cuda.get_device_name() and len(flow.cuda.get_device_capability(0)) == 2


def test_several_devices():
    code = """
import threading
import miniflow as flow
from miniflow.errors import DeviceError
x = flow.tensor([1.0, 2.0], device="cuda:1")
y = flow.tensor([3.0, 4.0], device="cuda:2")
try:
    x + y
except DeviceError as error:
    print(error)
z = x + y.to("cuda:1")
print(flow.cuda.device_count(), z.device, z.tolist(), flow.cuda.current_device(), flow.zeros(1).cuda().device)
with flow.cuda.device(2):
    print(flow.cuda.current_device(), flow.ones(1).cuda().device, (x * 2).device)
    thread = threading.Thread(target=lambda: print("thread", flow.cuda.current_device()))
    thread.start()
    thread.join()
flow.cuda.set_device("cuda:3")
print(flow.device("cuda"), [flow.cuda.memory_allocated(i) for i in range(4)])
w = flow.ones(2, device="cuda:1", requires_grad=True)
(w.to("cuda:3") * flow.tensor([5.0, 6.0], device="cuda:3")).sum().backward()
print(w.grad.device, w.grad.tolist())
"""
    lines = run(code, MINIFLOW_CUDA="host", MINIFLOW_DEVICES="4").splitlines()
    assert lines == [
        "add: got tensors on cuda:1 and on cuda:2; expected all on one device: move the other with x.to('cuda:1')",
        "4 cuda:1 [4.0, 6.0] 0 cuda:0",
        "2 cuda:2 cuda:1",
        "thread 0",
        "cuda:3 [0, 1024, 512, 0]",
        "cuda:1 [5.0, 6.0]",
    ]


def test_a_number_of_devices_that_makes_no_sense():
    code = """
import miniflow as flow
try:
    flow.device("cuda")
except flow.errors.DeviceError as error:
    print(error)
"""
    assert "MINIFLOW_DEVICES is 'many'" in run(code, MINIFLOW_CUDA="host", MINIFLOW_DEVICES="many")


# moving


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64",
                                  "uint8", "bool"])  # fmt: skip
def test_there_and_back(kind):
    x = flow.tensor(A).to(getattr(flow, kind))
    y = x.cuda()
    assert (y.device, y.dtype, y.shape, y.is_cuda, y.get_device()) == (CUDA, x.dtype, x.shape, True, 0)
    assert_same(y.cpu(), as_array(x))
    assert y.tolist() == x.tolist() and y.element_size() == x.element_size() and y.numel() == 6


def test_to():
    x = flow.tensor(A)
    y = x.to("cuda")
    assert y.to("cuda") is y and y.cuda() is y and x.cpu() is x and y.cuda(0) is y
    assert y.to(x).device == x.device and x.to(y).device == CUDA
    both = x.to("cuda", flow.float64)
    assert both.device == CUDA and both.dtype is flow.float64
    assert x.to(0).device == x.to(device="cuda").device == CUDA
    copied = y.to("cuda", copy=True)
    assert copied is not y and copied.data_ptr() != y.data_ptr() and copied.tolist() == y.tolist()
    with pytest.raises(DeviceError, match="'gpu' does not exist"):
        x.to("gpu")


def test_moving_does_not_share_memory():
    x = flow.zeros(3)
    y = x.cuda()
    x.fill_(1.0)
    assert y.tolist() == [0.0, 0.0, 0.0]
    z = y.cpu()
    y.fill_(2.0)
    assert z.tolist() == [0.0, 0.0, 0.0]


def test_gradients_move_back():
    x = flow.tensor(A, requires_grad=True)
    y = x.cuda()
    assert y.requires_grad and not y.is_leaf and repr(y.grad_fn) == "<to_device_backward>"
    (y * y).sum().backward()
    assert x.grad.device.type == "cpu"
    assert_close(x.grad, 2 * A)
    (slope,) = flow.autograd.grad((x.cuda() ** 3).sum(), x, create_graph=True)
    (curvature,) = flow.autograd.grad(slope.cuda().sum(), x)
    assert_close(curvature, 6 * A)


def test_zero_sized_and_zero_dim():
    empty = flow.zeros(0, 3).cuda()
    assert empty.tolist() == [] and empty.shape == (0, 3) and (empty + 1).shape == (0, 3)
    assert empty.sum().item() == 0 and empty.cpu().shape == (0, 3) and "size=(0, 3)" in repr(empty)
    scalar = flow.tensor(2.5).cuda()
    assert scalar.shape == () and scalar.item() == float(scalar) == 2.5 and (scalar + 1).item() == 3.5


# exchange with Python and NumPy


def test_numpy_copies():
    x = flow.ones(2, device="cuda")
    copy = x.numpy()
    copy += 1
    assert np.asarray(x).tolist() == x.tolist() == [1, 1]
    with pytest.raises(ValueError, match="on cuda:0: its NumPy array is a copy"):
        np.asarray(x, copy=False)
    with pytest.raises(BufferError, match=r"on cuda:0; copy it to the CPU first: x.cpu\(\)"):
        np.from_dlpack(x)
    assert flow.ones(2, device="cuda", requires_grad=True).numpy().tolist() == [1, 1]


def test_python_values():
    x = flow.tensor([3], device="cuda")
    assert x.item() == int(x) == 3 and bool(x) and [10, 20, 30, 40][x] == 40 and f"{x[0]:03d}" == "003"
    assert len(x) == 1 and [v.item() for v in flow.arange(3, device="cuda")] == [0, 1, 2]
    with pytest.raises(ShapeError, match="no single truth value"):
        bool(flow.ones(2, device="cuda"))


def test_print():
    x = flow.tensor([[1.0, 2.5]], device="cuda")
    assert repr(x) == "tensor([[1.0000, 2.5000]], device='cuda:0', dtype=miniflow.float32)"
    x.requires_grad_()
    assert repr(x * 2).splitlines() == [
        "tensor([[2., 5.]], device='cuda:0', dtype=miniflow.float32,", "       grad_fn=<mul_backward>)"
    ]  # fmt: skip
    assert "Parameter containing:\ntensor([0.], device='cuda:0'" in repr(nn.Parameter(flow.zeros(1, device="cuda")))


@pytest.mark.skipif(flow.cuda.is_emulated(), reason="there is no GPU: an emulated device does not pretend to others")
def test_cuda_array_interface():
    x = flow.tensor(A, device="cuda")
    found = x.t().__cuda_array_interface__
    assert found["shape"] == (3, 2) and found["strides"] == (4, 12) and found["typestr"] == "<f4"
    assert found["data"] == (x.data_ptr(), False) and x.__cuda_array_interface__["strides"] is None


def test_only_tensors_on_a_gpu_show_its_memory():
    assert not hasattr(flow.ones(2), "__cuda_array_interface__") and not hasattr(flow.ones(2), "__hostcuda_array__")
    x = flow.ones(2, device="cuda")
    assert hasattr(x, "__cuda_array_interface__") != hasattr(x, "__hostcuda_array__") == flow.cuda.is_emulated()


def test_a_kernel_of_ones_own():
    from miniflow.hostcuda import cuda

    @cuda.jit
    def double(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    x, y = flow.arange(5.0, device="cuda"), flow.empty(5, device="cuda")
    double[1, 8](x, y)
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    double[1, 8](x, cuda.as_cuda_array(y)[::-1])
    assert y.tolist() == [8.0, 6.0, 4.0, 2.0, 0.0]
    before = flow.cuda.memory_allocated()
    kept = cuda.as_cuda_array(flow.tensor([1.0, 2.0], device="cuda"))
    assert flow.cuda.memory_allocated() == before + 512  # the array keeps the memory of the tensor that is gone
    assert kept.copy_to_host().tolist() == [1.0, 2.0]


def test_reading_what_nobody_wrote_is_found():
    """With checks on, the ops themselves run in the checked executor."""
    code = """
import miniflow as flow
x = flow.ones(4, device="cuda")
print((x + x).tolist())
try:
    flow.empty(4, device="cuda") + x
except AssertionError as error:
    print(error)
"""
    right, wrong = run(code, MINIFLOW_CUDA="host", MINIFLOW_CHECK="1").split("\n", 1)
    assert right == "[2.0, 2.0, 2.0, 2.0]" and "uninitialised read" in wrong and "which nothing has written" in wrong


# factories


FACTORIES = {
    "zeros": lambda **k: flow.zeros(2, 3, **k),
    "ones": lambda **k: flow.ones(2, 3, **k),
    "full": lambda **k: flow.full((2, 3), 2.5, **k),
    "tensor": lambda **k: flow.tensor(A, **k),
    "as_tensor": lambda **k: flow.as_tensor(A, **k),
    "arange": lambda **k: flow.arange(5, **k),
    "linspace": lambda **k: flow.linspace(0, 1, 5, **k),
    "logspace": lambda **k: flow.logspace(0, 1, 5, **k),
    "eye": lambda **k: flow.eye(2, 3, **k),
    "rand": lambda **k: flow.rand(7, generator=flow.Generator().manual_seed(3), **k),
    "randn": lambda **k: flow.randn(7, generator=flow.Generator().manual_seed(3), **k),
    "randint": lambda **k: flow.randint(0, 9, (7,), generator=flow.Generator().manual_seed(3), **k),
    "randperm": lambda **k: flow.randperm(7, generator=flow.Generator().manual_seed(3), **k),
    "normal": lambda **k: flow.normal(1.0, 2.0, (7,), generator=flow.Generator().manual_seed(3), **k),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    here, there = FACTORIES[name](), FACTORIES[name](device="cuda")
    assert here.device.type == "cpu" and there.device == CUDA and there.dtype is here.dtype
    assert_close(there, as_array(here), rtol=1e-5)


def test_the_default_device():
    flow.set_default_device("cuda")
    assert flow.get_default_device() == CUDA
    for name, make in FACTORIES.items():
        assert make().device == CUDA, name
        assert make(device="cpu").device.type == "cpu", name
    assert nn.Linear(2, 3).weight.device == CUDA and flow.empty(2).device == CUDA
    assert flow.from_numpy(A).device.type == "cpu"
    flow.set_default_device(None)
    assert flow.zeros(1).device.type == "cpu"
    with pytest.raises(DeviceError, match="'gpu' does not exist"):
        flow.set_default_device("gpu")


def test_alike():
    x = flow.tensor(A, device="cuda")
    like = [flow.zeros_like(x), flow.ones_like(x), flow.empty_like(x), flow.full_like(x, 3), flow.rand_like(x),
            flow.randn_like(x), x.new_zeros(2), x.new_ones(2), x.new_full((2,), 1), x.new_tensor([1]), x.new_empty(2),
            flow.tensor(x), flow.randint_like(x, 5)]  # fmt: skip
    assert all(y.device == CUDA and y.dtype is x.dtype for y in like)
    assert flow.zeros_like(x, device="cpu").device.type == "cpu"
    assert flow.ones_like(x).tolist() == [[1.0] * 3] * 2


def test_random_numbers_are_those_of_the_cpu():
    flow.manual_seed(5)
    here = flow.rand(1000), flow.randint(0, 2**40, (1000,)), flow.zeros(1000).uniform_(-1, 1)
    flow.cuda.manual_seed(5)
    there = [flow.rand(1000, device="cuda"), flow.randint(0, 2**40, (1000,), device="cuda"),
             flow.zeros(1000, device="cuda").uniform_(-1, 1)]  # fmt: skip
    for a, b in zip(here, there, strict=True):
        assert_same(b, as_array(a))
    assert flow.Generator("cuda").device == CUDA


# mixing


def test_numbers_and_numpy_arrays_go_with_any_device():
    x = flow.tensor(A, device="cuda")
    for y in (x + A, A + x, x + 1, 1.0 + x, x.add(np.float32(2)), flow.maximum(x, A)):
        assert y.device == CUDA and y.dtype is flow.float32
    assert_same(x * A, A * A)
    assert_same(x > A - 1, np.ones((2, 3), np.bool_))


def test_mixed_devices_are_refused():
    x, y = flow.ones(2), flow.ones(2, device="cuda")
    for action, name, first, second in [
        (lambda: x + y, "add", "cpu", "cuda:0"),
        (lambda: y + x, "add", "cuda:0", "cpu"),
        (lambda: flow.matmul(flow.ones(2, 2), flow.ones(2, 2, device="cuda")), "matmul", "cpu", "cuda:0"),
        (lambda: flow.cat([x, y]), "cat", "cpu", "cuda:0"),
        (lambda: flow.where(x > 0, y, 0.0), "where", "cpu", "cuda:0"),
        (lambda: nn.Linear(2, 2)(y), "linear", "cuda:0", "cpu"),
        (lambda: nn.functional.cross_entropy(flow.ones(2, 3, device="cuda"), flow.tensor([0, 1])), "cross_entropy",
         "cuda:0", "cpu"),
    ]:  # fmt: skip
        with pytest.raises(DeviceError, match=f"{name}: got tensors on {first} and on {second}; .*x.to"):
            action()


def test_mixed_devices_are_refused_where_memory_is_written():
    x, y = flow.ones(2), flow.ones(2, device="cuda")
    with pytest.raises(DeviceError, match="add_: got tensors on cpu and on cuda:0"):
        x.add_(y)
    with pytest.raises(DeviceError, match="setitem: got a value on cuda:0 for a tensor on cpu"):
        x[:] = y
    with pytest.raises(DeviceError, match="grad: got a gradient on cuda:0; expected cpu"):
        x.requires_grad_().grad = y
    with pytest.raises(DeviceError, match="backward: got a gradient on cuda:0 for a tensor on cpu"):
        (x * 2).backward(y)
    with pytest.raises(DeviceError, match="data: got a tensor on cuda:0"):
        x.data = y
    assert x.tolist() == [1.0, 1.0]


def test_copy_between_devices():
    x, y = flow.zeros(2, 3), flow.tensor(A, device="cuda")
    assert x.copy_(y) is x and x.tolist() == A.tolist()
    y.copy_(flow.tensor([7.0, 8.0, 9.0]))
    assert y.tolist() == [[7.0, 8.0, 9.0]] * 2
    y[0, 0] = flow.tensor(5.0)  # a single number may come from anywhere
    assert y[0].tolist() == [5.0, 8.0, 9.0]


def test_leaving_the_leaf_behind():
    class ToHost(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy.cpu()

    x = flow.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(DeviceError, match="a gradient on cpu reached a leaf on cuda:0"):
        ToHost.apply(x).sum().backward()


# views and writing in place


def test_views_share_memory():
    x = flow.tensor(A, device="cuda")
    views = [x.t(), x[1], x[:, ::2], x.view(3, 2), x.unsqueeze(0), x.expand(4, 2, 3), x.diagonal(), x.unfold(1, 2, 1)]
    expected = [A.T, A[1], A[:, ::2], A.reshape(3, 2), A[None], np.broadcast_to(A, (4, 2, 3)), np.diagonal(A),
                np.lib.stride_tricks.sliding_window_view(A, 2, 1)]  # fmt: skip
    for y, want in zip(views, expected, strict=True):
        assert_same(y, want)
        assert [s * 4 for s, n in zip(y.stride(), y.shape, strict=True) if n > 1] == [
            s for s, n in zip(want.strides, want.shape, strict=True) if n > 1
        ]
    x.mul_(10)
    for y, want in zip(views, expected, strict=True):
        assert_same(y, 10 * want)
    assert x[1, 1:].storage_offset() == 4 and x[1].data_ptr() == x.data_ptr() + 12
    assert not x.t().is_contiguous() and x.t().contiguous().is_contiguous()


def test_writing_in_place():
    x = flow.tensor(A, device="cuda")
    x.add_(1).mul_(2.0)
    x.t()[0].fill_(9.0)
    x[:, 1] = 0.0
    x[flow.tensor([0, 1], device="cuda"), [2, 2]] = flow.tensor([5.0, 6.0], device="cuda")
    x[x > 8] = -1.0
    assert x.tolist() == [[-1.0, 0.0, 5.0], [-1.0, 0.0, 6.0]] and x.version == 6
    x.zero_()
    assert x.tolist() == [[0.0] * 3] * 2
    with pytest.raises(ShapeError, match="expanded or read-only view"):
        x.expand(2, 2, 3).add_(1)


def test_a_stale_tensor_is_noticed():
    x = flow.ones(3, device="cuda", requires_grad=True)
    y = x * 2
    z = y.exp()
    y.add_(1)
    z.sum().backward()  # exp keeps its result, which nobody changed
    w = y * y
    y.add_(1)
    with pytest.raises(AutogradError, match="changed by an in-place operation"):
        w.sum().backward()


def test_gradients_through_views_and_writes():
    gradients = {}
    for place in ("cpu", "cuda"):
        x = flow.tensor(A, device=place, requires_grad=True)
        y = x * 2
        y[0].mul_(x[1])
        y[:, 1] = x[:, 2] ** 2
        (y * flow.arange(6.0, device=place).view(2, 3)).sum().backward()
        gradients[place] = x.grad
    assert gradients["cuda"].device == CUDA
    assert_close(gradients["cuda"], as_array(gradients["cpu"]))


def test_indexing():
    x = flow.tensor(A, device="cuda")
    cases = [1, (0, slice(1, 3)), [1, 0, 1], (slice(None), [2, 0]), A > 2, np.array([1, 1]), (None, 0), (..., -1)]
    for index in cases:
        assert_same(x[index], A[index])
    assert_same(x[flow.tensor([1, 0])], A[[1, 0]])  # indices may lie on the CPU
    assert_same(x[flow.tensor([[1], [0]], device="cuda")], A[[[1], [0]]])
    assert_same(x[x > 2], A[A > 2])
    if flow.cuda.is_emulated():
        with pytest.raises(IndexError, match="out of range|outside"):
            x[flow.tensor([5], device="cuda")]


# the tape


def test_gradients_are_accumulated_in_place():
    x = flow.tensor(A, device="cuda", requires_grad=True)
    for count in (1, 2, 3):
        (x * 3).sum().backward()
        if count == 1:
            first = x.grad
        assert_same(x.grad, np.full((2, 3), 3.0 * count, np.float32))
    assert x.grad is first


def test_a_gradient_owns_its_memory():
    x = flow.tensor(A, device="cuda", requires_grad=True)
    y = flow.tensor(A, device="cuda", requires_grad=True)
    cotangent = flow.ones(2, 3, device="cuda")
    (x + y).backward(cotangent)
    x.grad.add_(1)
    assert y.grad.tolist() == cotangent.tolist() == [[1.0] * 3] * 2


@pytest.mark.slow
def test_gradcheck():
    x = flow.tensor(A, dtype=flow.float64, device="cuda", requires_grad=True)
    w = flow.tensor(A + 1, dtype=flow.float64, device="cuda", requires_grad=True)
    assert flow.autograd.gradcheck(lambda x, w: (x * w).tanh() @ w.t(), (x, w))
    assert flow.autograd.gradgradcheck(lambda x, w: x * w * w, (x, w))

    class Wrong(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 3

    with pytest.raises(flow.errors.GradientCheckError, match="finite differences give"):
        flow.autograd.gradcheck(Wrong.apply, x)


# modules, optimizers, files, data


X, LABELS = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32), np.arange(9) % 2


def model():
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def test_modules_move():
    network = model()
    network(flow.tensor(A))
    weight = network[0].weight
    assert network.cuda() is network and network[0].weight is weight and weight.device == CUDA
    assert all(t.device == CUDA for t in network.state_dict().values())
    assert network[2](flow.tensor(A, device="cuda")).device == CUDA
    assert network.to("cpu") is network and network[1].running_mean.device.type == "cpu"
    network.to("cuda", flow.float64)
    assert weight.dtype is flow.float64 and weight.device == CUDA
    assert network.cpu()[1].num_batches_tracked.item() == 1


class Scale(nn.Module):
    """Its kernels compile faster than those of a Linear."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(flow.ones(2, 3))

    def forward(self, x):
        return x * self.weight


def test_a_module_moves_with_its_gradients():
    network = Scale()
    (network(flow.tensor(A)) * A).sum().backward()
    network.cuda()
    assert network.weight.grad.device == CUDA
    (network(flow.tensor(A, device="cuda")) * A).sum().backward()
    assert_close(network.weight.grad, 2 * A**2)


OPTIMIZERS = {
    "sgd": lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: flow.optim.Adam(p, lr=0.1),
    "adamw": lambda p: flow.optim.AdamW(p, lr=0.1),
    "rmsprop": lambda p: flow.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5),
    "adagrad": lambda p: flow.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_the_cpu(name):
    """Five steps, the last two of them on the CPU: the optimizer's state follows the parameters."""
    check_training(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_in_the_checked_executor(name, checked_executor):
    check_training(name)


def check_training(name):
    results = []
    for places in (["cpu"] * 5, ["cuda"] * 3 + ["cpu"] * 2):
        network = model()
        optimizer = OPTIMIZERS[name](network.parameters())
        for step, place in enumerate(places):
            network.to(place)
            x, labels = flow.tensor(X + step, device=place), flow.tensor(LABELS, device=place)
            loss = nn.functional.cross_entropy(network(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        results.append([as_array(t) for t in network.state_dict().values()])
    assert len(results[0]) == 8
    for here, there in zip(*results, strict=True):
        assert_close(there, here, rtol=1e-4, atol=1e-5)


def test_parameters_on_two_devices():
    a = flow.ones(2, requires_grad=True)
    b = flow.ones(2, device="cuda", requires_grad=True)
    optimizer = flow.optim.Adam([a, b], lr=0.5)
    for _ in range(2):
        (a.cuda() * b).sum().backward()
        optimizer.step()
    assert_close(a, as_array(b), rtol=1e-6)
    assert a.device.type == "cpu" and optimizer.state[b]["exp_avg"].device == CUDA


def test_optimizer_state_is_loaded_to_the_device_of_the_parameter():
    x = flow.ones(2, requires_grad=True)
    first = flow.optim.Adam([x])
    (x * 2).sum().backward()
    first.step()
    y = flow.ones(2, device="cuda", requires_grad=True)
    second = flow.optim.Adam([y])
    second.load_state_dict(first.state_dict())
    assert second.state[y]["exp_avg"].device == CUDA


def test_state_dicts_cross_devices():
    here, there = model(), model().cuda()
    here[0].weight.data.fill_(3.0)
    there.load_state_dict(here.state_dict())
    assert there[0].weight.device == CUDA and (there[0].weight == 3.0).all()


def test_saving(tmp_path):
    shared = flow.tensor(A, device="cuda")
    leaf = flow.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    flow.save({"a": shared, "tied": shared.detach(), "leaf": leaf, "view": shared.t(), "cpu": flow.ones(1)},
              tmp_path / "x.safetensors")  # fmt: skip
    loaded = flow.load(tmp_path / "x.safetensors")
    assert loaded["a"].device == loaded["leaf"].device == CUDA and loaded["cpu"].device.type == "cpu"
    assert_same(loaded["a"], A)
    assert_same(loaded["view"], A.T)
    assert loaded["leaf"].requires_grad and loaded["leaf"].is_leaf
    assert loaded["tied"] is loaded["a"]
    here = flow.load(tmp_path / "x.safetensors", map_location="cpu")
    assert all(t.device.type == "cpu" for t in here.values()) and here["a"].tolist() == A.tolist()
    there = flow.load(tmp_path / "x.safetensors", map_location=CUDA)
    assert all(t.device == CUDA for t in there.values())


def test_a_file_from_a_machine_with_more_devices(tmp_path):
    path = tmp_path / "x.safetensors"
    code = f"import miniflow as flow; flow.save(flow.ones(2, device='cuda:7'), {str(path)!r})"
    run(code, MINIFLOW_CUDA="host", MINIFLOW_DEVICES="8")
    with pytest.raises(DeviceError, match="load: device 'cuda:7' does not exist.*map_location='cpu'"):
        flow.load(path)
    assert flow.load(path, map_location="cuda").device == CUDA


def test_copies():
    x = flow.tensor(A, device="cuda", requires_grad=True)
    x.grad = flow.ones(2, 3, device="cuda")
    deep, shallow = copy.deepcopy(x), copy.copy(x)
    assert deep.device == CUDA and deep.requires_grad and deep.data_ptr() != x.data_ptr()
    assert shallow.data_ptr() == x.data_ptr() and deep.grad.device == CUDA
    network = copy.deepcopy(model().cuda())
    assert network[0].weight.device == CUDA
    assert x.clone().data_ptr() != x.data_ptr() and x.detach().data_ptr() == x.data_ptr()


def test_batches_of_a_loader():
    digits = TensorDataset(flow.tensor(A), flow.tensor([0, 1]))
    batches = [(x.to("cuda"), y.cuda()) for x, y in DataLoader(digits, batch_size=1)]
    assert [x.device for x, _ in batches] == [CUDA, CUDA] and [y.tolist() for _, y in batches] == [[0], [1]]
    flow.set_default_device("cuda")  # the loader's own random numbers stay on the CPU
    seen = [y.item() for _, y in DataLoader(digits, shuffle=True)]
    assert sorted(seen) == [0, 1]


@pytest.mark.slow
def test_clipping_gradients(checked_executor):
    x = flow.ones(4, device="cuda", requires_grad=True)
    (x * 3).sum().backward()
    assert nn.utils.clip_grad_norm_([x], 1.0).item() == pytest.approx(6.0)
    assert_close(x.grad, np.full(4, 0.5, np.float32), rtol=1e-5)


# streams


def test_streams_and_events():
    side = flow.cuda.Stream()
    start, end = flow.cuda.Event(enable_timing=True), flow.cuda.Event(enable_timing=True)
    assert flow.cuda.current_stream() is flow.cuda.default_stream() is not side
    start.record()
    with flow.cuda.stream(side):
        assert flow.cuda.current_stream() is side
        x = flow.ones(1000, device="cuda") * 2
    end.record(side)
    flow.cuda.current_stream().wait_stream(side)
    end.synchronize()
    assert start.elapsed_time(end) >= 0 and end.query() and side.query()
    assert flow.cuda.current_stream() is flow.cuda.default_stream()
    assert x.sum().item() == 2000
    flow.cuda.synchronize()
    side.synchronize()


def test_each_thread_has_its_own_current_stream():
    side = flow.cuda.Stream()
    found = []
    with flow.cuda.stream(side):
        thread = threading.Thread(target=lambda: found.append(flow.cuda.current_stream()))
        thread.start()
        thread.join()
    assert found == [flow.cuda.default_stream()]


def test_threads_compute_side_by_side():
    results = {}

    def work(seed):
        x = flow.rand(50, 50, device="cuda", generator=flow.Generator().manual_seed(seed))
        for _ in range(10):
            x = (x @ x).clamp(0.0, 1.0)
        results[seed] = x.sum().item()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = dict(results)
    for seed in (1, 2):
        work(seed)
    assert results == first
