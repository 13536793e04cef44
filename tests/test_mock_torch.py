"""`import torch` gives miniflow while the mock is enabled, and what was there before afterwards."""

import importlib
import importlib.metadata
import subprocess
import sys

import pytest
import safetensors

import miniflow as flow
from miniflow import mock_torch


@pytest.fixture
def no_torch(monkeypatch):
    """As if nobody had imported torch."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    mock_torch.disable()


@pytest.mark.usefixtures("no_torch")
def test_names_are_those_of_miniflow():
    with mock_torch.enable():
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.autograd import Function
        from torch.optim.lr_scheduler import StepLR
        from torch.utils.data import DataLoader

        assert torch.ones is flow.ones and nn.Linear is flow.nn.Linear and F.relu is flow.nn.functional.relu
        assert Function is flow.autograd.Function and DataLoader is flow.utils.data.DataLoader
        assert StepLR is flow.optim.lr_scheduler.StepLR and torch.Tensor is flow.Tensor
        assert torch.__version__ == mock_torch.VERSION and not torch.jit.is_scripting()
        assert torch.jit.script(len) is len and torch.compile(mode="default")(len) is len
    assert "torch" not in sys.modules


@pytest.mark.usefixtures("no_torch")
def test_what_is_missing_is_refused_when_it_is_used():
    with mock_torch.enable():
        import torch
        from torch import nothing_of_the_kind
        from torch.nothing.deep import name

        def annotated(x: "torch.Tensor | nothing_of_the_kind") -> nothing_of_the_kind | None: ...

        assert not hasattr(torch, "nothing_of_the_kind") and not hasattr(torch.nn, "Nothing")
        with pytest.raises(AttributeError, match=r"torch\.nothing_of_the_kind is not in miniflow"):
            nothing_of_the_kind()
        with pytest.raises(AttributeError, match=r"torch\.nothing\.deep\.name is not in miniflow"):
            name[0]
        with pytest.raises(AttributeError, match=r"torch\.nn\.Nothing is not in miniflow"):
            torch.nn.Nothing(3)

        class Derived(nothing_of_the_kind, torch.fx.Tracer):
            pass

        with pytest.raises(AttributeError, match=r"torch\.nothing_of_the_kind is not in miniflow"):
            Derived(1)
        assert not isinstance(1, nothing_of_the_kind)


@pytest.mark.usefixtures("no_torch")
def test_operators_are_functions_of_miniflow_and_their_registration_does_nothing():
    with mock_torch.enable():
        import torch
        import torch.library
        from torch._dynamo import allow_in_graph
        from torch.library import register_fake

        assert allow_in_graph(len) is torch.compiler.allow_in_graph(len) is len
        assert torch.library.register_fake("torchvision::name")(len) is register_fake("name")(len) is len
        torch.library.Library("torchvision", "IMPL").impl("name", len, "CPU")
        assert not torch._C._get_tracing_state() and not torch.jit.is_scripting()
        assert torch.nn.modules.activation.ReLU is flow.nn.ReLU and not hasattr(torch.nn.modules, "nothing")
        assert torch.ops.torchvision.relu.default(flow.tensor([-1.0])).item() == 0
        with pytest.raises(AttributeError, match=r"torch\.ops\.torchvision\.nothing is not in miniflow"):
            torch.ops.torchvision.nothing.default(1)


@pytest.mark.usefixtures("no_torch")
def test_what_programs_begin_with():
    """The seeds, flags and choice of a device that stand at the head of many scripts."""
    with mock_torch.enable():
        import torch
        import torch.backends.cudnn as cudnn
        from torch.autograd import Variable

        torch.manual_seed(0)
        torch.cuda.manual_seed_all(0)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic, cudnn.benchmark = True, False
        torch.backends.cuda.matmul.allow_tf32 = True
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        assert found == ("cpu" if accelerator is None else accelerator.type)
        assert cudnn.deterministic and not torch.backends.cudnn.benchmark
        w = torch.ones(2, requires_grad=True)
        x = Variable(w * 2, requires_grad=True)
        x.sum().backward()
        assert x.grad.tolist() == [1, 1] and w.grad is None
        assert isinstance(x, Variable) and isinstance(w, Variable) and not isinstance(1, Variable)


@pytest.mark.usefixtures("no_torch")
def test_classes_of_the_modules_that_define_them_are_the_same():
    with mock_torch.enable():
        import torch
        import torch.nn as nn
        from torch.nn.modules import Conv2d, Module
        from torch.nn.modules.batchnorm import _BatchNorm
        from torch.nn.modules.conv import _ConvNd
        from torch.nn.modules.pooling import MaxPool2d
        from torch.nn.modules.utils import _pair

        assert Conv2d is nn.Conv2d and Module is torch.nn.Module and MaxPool2d is nn.MaxPool2d and _pair(2) == (2, 2)
        assert isinstance(nn.Conv2d(1, 1, 1), _ConvNd) and isinstance(nn.ConvTranspose1d(1, 1, 1), _ConvNd)
        assert not isinstance(nn.Linear(1, 1), _ConvNd) and isinstance(nn.BatchNorm1d(1), _BatchNorm)
        names: dict = {}
        exec("from torch import *\nfrom torch.nn import *\nfrom torch.nn.functional import *", names)
        assert names["ones"] is flow.ones and names["Linear"] is nn.Linear and names["relu"] is nn.functional.relu


@pytest.mark.usefixtures("no_torch")
def test_mixed_precision_of_older_releases():
    with mock_torch.enable():
        import torch
        from torch.cuda.amp import GradScaler, autocast

        a = torch.ones(2, 2, device="cuda")
        with autocast(False):
            assert (a @ a).dtype is torch.float32
        with autocast():
            assert (a @ a).dtype is torch.float16
        assert GradScaler(8.0).get_scale() == 8
        with pytest.warns(UserWarning, match="anomalies in backward are not detected"), torch.autograd.detect_anomaly():
            pass


@pytest.mark.usefixtures("no_torch")
def test_wrappers_of_models():
    with mock_torch.enable():
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        layer, x = nn.Linear(2, 1), flow.ones(3, 2)
        for wrapper in (nn.DataParallel, DistributedDataParallel):
            model = wrapper(layer, device_ids=[0])
            assert model.module is layer and sorted(model.state_dict()) == ["module.bias", "module.weight"]
            assert isinstance(model, wrapper) and model(x).tolist() == layer(x).tolist()
        with model.no_sync():
            model(x).sum().backward()
        assert not isinstance(model, nn.DataParallel)
        dist.init_process_group("gloo", rank=0, world_size=1)
        with pytest.raises(ValueError, match="got world_size=3; expected 1: start ranks with"):
            dist.init_process_group("gloo", world_size=3)


@pytest.mark.usefixtures("no_torch")
def test_positions_of_the_arguments_of_data_parallel_training():
    flow.parallel.simulate(2)
    try:
        for args, sends in (((None, None, 0, False), False), ((None, None, 0, True, True, None, 25, True), True)):
            with mock_torch.enable():
                from torch.nn.parallel import DistributedDataParallel

                model = DistributedDataParallel(flow.nn.BatchNorm1d(3), *args)
            before = dict(flow.parallel.stats())
            model(flow.ones(2, 3))
            assert (dict(flow.parallel.stats()) != before) == sends
    finally:
        flow.parallel.simulate(1)


@pytest.mark.usefixtures("no_torch")
def test_further_modules(monkeypatch):
    monkeypatch.setattr(mock_torch, "MODULES", dict(mock_torch.MODULES))
    with mock_torch.enable(lazy=True, verbose=False, extra_dict={"torch.of_ones_own": "miniflow.linalg"}):
        import torch.of_ones_own

        assert torch.of_ones_own.norm is flow.linalg.norm


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize("library", ["torchvision", "flowvision"])
def test_vision_stands_for_libraries_that_are_not_installed(library, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(flow.mock_torch, "_is_installed", lambda name: False)
    with flow.mock_torch.enable():
        found = importlib.import_module(library)
        models = importlib.import_module(f"{library}.models.resnet")
        assert found.models.resnet18 is models.resnet18 is flow.vision.models.resnet18
        assert found.ops.nms is flow.nms and not hasattr(found.models, "nothing")
        if library == "flowvision":
            style = importlib.import_module("flowvision.models.neural_style_transfer.stylenet")
            assert style.neural_style_transfer is flow.vision.models.neural_style_transfer
    assert library not in sys.modules
    monkeypatch.setattr(flow.mock_torch, "_is_installed", lambda name: True)
    assert not flow.mock_torch._is_mocked(library)


def test_it_nests_and_is_switched_by_hand():
    mock_torch.enable()
    with mock_torch.enable():
        assert mock_torch.is_enabled()
    assert mock_torch.is_enabled()
    mock_torch.disable()
    mock_torch.disable()
    assert not mock_torch.is_enabled()


def test_a_module_that_was_there_comes_back(monkeypatch):
    before = object()
    monkeypatch.setitem(sys.modules, "torch", before)
    with mock_torch.enable():
        import torch

        assert torch is not before
    assert sys.modules["torch"] is before


def test_as_a_program(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nvalue = torch.ones(3).sum().item()\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport helper, torch\nprint(helper.value, torch.tensor([2.0]), sys.argv[1:], __name__)\n"
    )
    command = [sys.executable, "-m", "miniflow.mock_torch", str(script), "--lr", "1"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "3.0 tensor([2.], dtype=miniflow.float32) ['--lr', '1'] __main__\n"
    result = subprocess.run([*command[:3], "-m", "helper"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout == ""


def test_a_script_that_is_not_there_is_named():
    command = [sys.executable, "-m", "miniflow.mock_torch", "nowhere.py"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr == "python -m miniflow.mock_torch: cannot read nowhere.py: there is no such file\n"


@pytest.mark.usefixtures("no_torch")
def test_state_dicts_of_modules_are_files_of_safetensors(tmp_path):
    with mock_torch.enable():
        from safetensors.torch import load_model, nothing_of_the_kind, save_model, storage_ptr, storage_size

        model, other = flow.nn.Linear(2, 3), flow.nn.Linear(2, 3)
        save_model(model, tmp_path / "model.safetensors")
        missing, unexpected = load_model(other, tmp_path / "model.safetensors")
        assert not missing and not unexpected and bool((other.weight == model.weight).all())
        with safetensors.safe_open(tmp_path / "model.safetensors", framework="pt") as file:
            assert file.get_tensor("weight").tolist() == model.weight.tolist()
            assert storage_size(model.weight) == 24 and storage_ptr(model.weight) == model.weight.data_ptr()
        with pytest.raises(AttributeError, match=r"safetensors\.torch\.nothing_of_the_kind is not in miniflow"):
            nothing_of_the_kind()


@pytest.mark.usefixtures("no_torch")
def test_arrays_and_blocks_of_kernels():
    with mock_torch.enable():
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH), torch.backends.cuda.sdp_kernel(enable_flash=False):
            x = torch.asarray([1.0, 2.0], requires_grad=True)
        assert x.requires_grad and not torch.asarray(x).requires_grad and torch.asarray(3).item() == 3
        assert torch.div(7, 2, rounding_mode="trunc").item() == 3 and torch.conv2d is flow.nn.functional.conv2d
        here = torch.device("cpu")
        assert here == x.device and isinstance(here, torch.device) and here != torch.device("meta")
        from torch._dynamo.a.file import anything

        with anything(), torch._dynamo.anything.at_all(), torch.distributed.fsdp.anything:
            assert torch.distributed.tensor.Replicate()(len) is len
        assert importlib.metadata.version("torch") == torch.__version__
        assert torch.cuda.device_count() == 0 or torch.cuda.is_available()
        assert torch._C._nn._parse_to("cpu", torch.float64)[:2] == (flow.device("cpu"), flow.float64)
        assert (
            torch.distributed.ReduceOp.SUM is torch.distributed.ReduceOp.RedOpType.SUM is flow.distributed.ReduceOp.SUM
        )
        state = torch.cuda.get_rng_state()
        drawn = torch.rand(3)
        torch.cuda.set_rng_state(state)
        assert bool((torch.rand(3) == drawn).all()) and torch.cuda.get_rng_state_all() == []
        y = torch.softmax(x, 0)
        y.backward(flow.tensor([1.0, 3.0]))
        assert bool((torch._softmax_backward_data(flow.tensor([1.0, 3.0]), y, 0, torch.float32) == x.grad).all())
        assert torch.nn.init.uniform is flow.nn.init.uniform_ and not isinstance(x, torch.fx.Proxy)
        assert torch.utils._pytree.tree_map(len, {"a": ["x", "yz"]}) == {"a": [1, 2]}
        assert torch.asarray(x).data_ptr() == x.data_ptr() != torch.asarray(x, copy=True).data_ptr()


@pytest.mark.usefixtures("no_torch")
def test_programs_know_that_they_are_recorded():
    with mock_torch.enable():
        import torch

        class Doubled(torch.nn.Module):
            def forward(self, x):
                return x * 2 if torch.jit.is_tracing() or x.sum() > 0 else x

        graph = flow.nn.Graph.trace(Doubled())
        assert graph(torch.ones(2)).tolist() == [2, 2] and not torch.jit.is_tracing()
