"""The bases of data sets of images, and what they share: archives that are fetched, and files that must be there."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from miniflow.errors import ArgumentError, DataError
from miniflow.utils.data.dataset import Dataset
from miniflow.vision.pillow import pillow

Folder = str | os.PathLike
Transform = Callable[[Any], Any] | None
PairTransform = Callable[[Any, Any], tuple[Any, Any]] | None


class VisionDataset(Dataset[tuple[Any, Any]]):
    """Pairs of an image and its target: a subclass writes `load(index)` and `__len__()`.

    Args:
        root: the folder of the data set.
        transforms: called with image and target, returns both; instead of the next two.
        transform: called with each image.
        target_transform: called with each target.

    Raises:
        ArgumentError: for `transforms` together with one of the others.

    Source: `torchvision.datasets.VisionDataset`.
    """

    def __init__(
        self, root: Folder | None = None, transforms: PairTransform = None, transform: Transform = None,
        target_transform: Transform = None,
    ):  # fmt: skip
        if transforms and (transform or target_transform):
            expected = "transforms alone, or the others without it"
            raise ArgumentError(f"{type(self).__name__}: got transforms and transform too; expected {expected}")
        self.root = None if root is None else Path(root).expanduser()
        self.transforms, self.transform, self.target_transform = transforms, transform, target_transform

    def load(self, index: int) -> tuple[Any, Any]:
        """The image and the target at `index`, before the transforms."""
        raise NotImplementedError(f"{type(self).__name__} must define load(index)")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = self.load(index)
        if self.transforms is not None:
            return self.transforms(image, target)
        image = image if self.transform is None else self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(root={str(self.root)!r}, {len(self)} samples)"

    def existing(self, path: Path) -> Path:
        """A file or folder of the data set.

        Raises:
            DataError: if it is not there.
        """
        if not path.exists():
            expected = f"the files of the data set in {self.root}: download=True fetches those of MNIST, CIFAR and VOC"
            raise DataError(f"{type(self).__name__}: found no {path}; expected {expected}")
        return path


class TrainTestDataset(VisionDataset):
    """Images in memory that are published in two parts: a subclass writes `read()`, and `download()`.

    Args:
        root: the folder of the data set.
        train: the training images, or those to test on.
        transform, target_transform: called with each image and each class.
        download: fetch the files unless they are there, and check them.

    Attributes:
        data: the pixels (N, height, width) or (N, height, width, 3), uint8.
        targets: the N classes.
        classes, class_to_idx: their names, and name -> class.

    Raises:
        DataError: for files that are missing, damaged, or do not belong together.
        DownloadError: if they cannot be fetched, or are not the published ones.
    """

    classes: list[str]

    def __init__(
        self, root: Folder, train: bool = True, transform: Transform = None, target_transform: Transform = None,
        download: bool = False,
    ):  # fmt: skip
        super().__init__(root, None, transform, target_transform)
        self.train = train
        if download:
            self.download()
        self.data, self.targets = self.read()
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}

    def load(self, index: int) -> tuple[Any, int]:
        return pillow().fromarray(np.array(self.data[index])), int(self.targets[index])

    def __len__(self) -> int:
        return len(self.targets)


def fetch_archive(url: str, folder: Path, digest: str) -> None:
    """Fetch a tar archive into a folder unless it is there, check it, and unpack it in its place.

    Raises:
        DownloadError: if it cannot be fetched, or is not the published one.
    """
    from miniflow.utils.data.download import download  # here, because urllib takes long to import

    path = download(url, folder / url.rpartition("/")[2], digest)
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
