"""MNIST: handwritten digits, 28 by 28 pixels (LeCun, Bottou, Bengio and Haffner, 1998)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from miniflow.errors import ArgumentError, DownloadError
from miniflow.tensor import Tensor
from miniflow.utils.data.dataset import TensorDataset
from miniflow.utils.data.idx import read_idx

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"

# split -> (images, labels), each a file name and the SHA-256 of the published file
FILES = {
    "train": (
        ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ),
    "test": (
        ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
}

BUNDLED = Path(__file__).parents[2] / "data" / "mnist_5k.npz"
MEAN, STD = 0.1307, 0.3081  # of the 60,000 training images, pixels scaled to [0, 1]


def mnist(
    split: str = "train", *, root: str | os.PathLike | None = None, download: bool = False, normalize: bool = True
) -> TensorDataset:
    """Handwritten digits with their labels.

    Without arguments these are the 5,000 digits that come with miniflow, 4,000 to train on and 1,000 to test on, each
    split with equally many of every class, in the order 0, 1, ..., 9, 0, 1, ... With `download=True`, or a `root` that
    holds them, they are the full 60,000 and 10,000.

    Args:
        split: "train" or "test".
        root: folder with the four IDX files, gzip-compressed as published or plain. With `download=True` they are
            fetched to it; the default then is `mnist` in `$MINIFLOW_CACHE`, or else in `~/.cache/miniflow`.
        download: fetch the files of this split unless they are there, with a progress bar, and check their SHA-256.
        normalize: give pixels mean 0 and standard deviation 1 over the full training set: (x - 0.1307) / 0.3081, for x
            in [0, 1]. Otherwise pixels are in [0, 1].

    Returns:
        a TensorDataset of images (N, 1, 28, 28) float32 and labels (N,) int64.

    Raises:
        ArgumentError: for an unknown split.
        DataError: for a `root` without the files, or with damaged ones.
        ShapeError: for a `root` with more images than labels, or fewer.
        DownloadError: if the files cannot be fetched, or are not the published ones.

    >>> digits = mnist("test")
    >>> image, label = digits[7]
    >>> image.shape, label.item(), len(digits)
    (miniflow.Size([1, 28, 28]), 7, 1000)
    >>> images, labels = digits.tensors
    """
    if split not in FILES:
        raise ArgumentError(f'mnist: got split {split!r}; expected "train" or "test"')
    if download:
        images, labels = (read_idx(path) for path in _downloaded(split, root))
    elif root is not None:
        images, labels = (read_idx(present(Path(root), name)) for name, _ in FILES[split])
    else:
        images, labels = _bundled(split)
    pixels = images[:, None].astype(np.float32) / np.float32(255)
    if normalize:
        pixels = (pixels - np.float32(MEAN)) / np.float32(STD)
    return TensorDataset(Tensor._wrap(pixels), Tensor._wrap(labels.astype(np.int64)))


def _bundled(split: str) -> tuple[np.ndarray, np.ndarray]:
    """The digits that come with miniflow: the last 100 of each class are the test split."""
    with np.load(BUNDLED) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    order = np.arange(5000).reshape(10, 500).T.ravel()  # the file is sorted by label; take the classes in turn
    chosen = order[:4000] if split == "train" else order[4000:]
    return images[chosen], labels[chosen]


def _downloaded(split: str, root: str | os.PathLike | None) -> list[Path]:
    from miniflow.utils.data.download import download as fetch  # here, because urllib takes long to import

    folder = Path(root) if root is not None else cache_folder() / "mnist"
    try:
        return [fetch(MIRROR + name, folder / name, sha256) for name, sha256 in FILES[split]]
    except DownloadError as error:
        raise DownloadError(
            f"{error}; flow.data.mnist() without download=True gives the 5,000 bundled digits and needs no network"
        ) from error


def cache_folder() -> Path:
    """Where downloaded files are kept: `$MINIFLOW_CACHE`, or else `~/.cache/miniflow`."""
    return Path(os.environ.get("MINIFLOW_CACHE") or Path.home() / ".cache" / "miniflow")


def present(folder: Path, name: str) -> Path:
    """The file as published, or else unpacked."""
    path = folder / name
    return path if path.is_file() else path.with_suffix("")
