"""Files that torch writes and files that torch reads."""

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import CheckpointError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
import safetensors.torch  # noqa: E402  (needs torch)

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("name", DTYPES)
def test_both_ways(tmp_path, name):
    path = tmp_path / "x.safetensors"
    theirs = (torch.arange(-6, 6).reshape(3, 4) * 3).to(getattr(torch, name))
    safetensors.torch.save_file({"layer.weight": theirs, "scalar": theirs[1, 2].clone()}, path)
    ours = flow.load(path)
    assert set(ours) == {"layer.weight", "scalar"} and ours["scalar"].shape == ()
    assert ours["layer.weight"].dtype.name == name
    np.testing.assert_array_equal(ours["layer.weight"].numpy().astype(np.float64), theirs.double().numpy())
    flow.save({"layer.weight": ours["layer.weight"], "step": 3}, path)
    back = safetensors.torch.load_file(path)
    assert list(back) == ["layer.weight"] and back["layer.weight"].dtype == theirs.dtype
    assert torch.equal(back["layer.weight"], theirs)


def test_state_dict_of_a_module_reaches_torch_and_back(tmp_path):
    path = tmp_path / "x.safetensors"
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    ours = flow.nn.Sequential(flow.nn.Linear(5, 3), flow.nn.BatchNorm1d(3))
    safetensors.torch.save_file(theirs.state_dict(), path)
    ours.load_state_dict(flow.load(path))
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    expected = theirs.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours.eval()(flow.from_numpy(x)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    flow.save(ours.state_dict(), path)
    theirs.load_state_dict(safetensors.torch.load_file(path))


@pytest.mark.parametrize("as_zip", [True, False])
def test_torch_save_is_refused_with_the_way_out(tmp_path, as_zip):
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=as_zip)
    kind = "zip archive" if as_zip else "pickle"
    with pytest.raises(CheckpointError, match=f"is a.* {kind}.*safetensors.torch.save_file"):
        flow.load(path)
