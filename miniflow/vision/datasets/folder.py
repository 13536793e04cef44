"""Images in folders: the name of a folder is the class of the files in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from miniflow.errors import ArgumentError, DataError
from miniflow.vision.datasets.vision import Folder, Transform, VisionDataset
from miniflow.vision.pillow import pillow

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def default_loader(path: Folder) -> Any:
    """The image in a file, as a PIL image in RGB. `torchvision.datasets.folder.default_loader`.

    Raises:
        DataError: for a file that is damaged, or no image.
        ImportError: without Pillow.
    """
    try:
        with pillow().open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError) as error:
        raise DataError(f"cannot read {path}: {error}; expected an image") from error


class DatasetFolder(VisionDataset):
    """Files in folders `root/class/.../name`; the classes are the sorted names of the folders in `root`.

    Args:
        root: the folder.
        loader: makes a sample of the path of a file.
        extensions: of the files that are samples, in lower case; or
        is_valid_file: says of a path whether it is a sample.
        transform, target_transform: called with each sample and each class index.
        allow_empty: whether a class may have no file.

    Attributes:
        classes: the names of the classes.
        class_to_idx: name -> index.
        samples: (path, class index), sorted by class and path.
        targets: the class index of each sample.

    Raises:
        ArgumentError: for both or none of `extensions` and `is_valid_file`.
        DataError: for a root without folders, or a class without files.

    Source: `torchvision.datasets.DatasetFolder`, whose methods to override are these.
    """

    def __init__(
        self, root: Folder, loader: Callable[[str], Any], extensions: Sequence[str] | None = None,
        transform: Transform = None, target_transform: Transform = None,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ):  # fmt: skip
        super().__init__(root, None, transform, target_transform)
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: Folder) -> tuple[list[str], dict[str, int]]:
        """The names of the classes, and name -> index."""
        folders = os.scandir(directory) if os.path.isdir(directory) else ()
        classes = sorted(entry.name for entry in folders if entry.is_dir())
        if not classes:
            raise DataError(f"{type(self).__name__}: found no folder in {directory}; expected one for each class")
        return classes, {name: index for index, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory: Folder, class_to_idx: dict[str, int], extensions: Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ) -> list[tuple[str, int]]:  # fmt: skip
        """The samples: (path, class index)."""
        if (extensions is None) == (is_valid_file is None):
            expected = "extensions or is_valid_file"
            raise ArgumentError(f"DatasetFolder: got {extensions} and {is_valid_file}; expected {expected}")
        endings = extensions if isinstance(extensions, str) else tuple(extensions or ())
        is_sample = is_valid_file or (lambda path: path.lower().endswith(endings))
        samples = []
        for name, index in sorted(class_to_idx.items()):
            walk = sorted(os.walk(os.path.join(directory, name), followlinks=True))
            paths = [os.path.join(folder, file) for folder, _, files in walk for file in sorted(files)]
            found = [(path, index) for path in paths if is_sample(path)]
            if not found and not allow_empty:
                wanted = f"of {', '.join(endings)}" if endings else "that is_valid_file accepts"
                raise DataError(f"DatasetFolder: found no file of class {name!r} in {directory}; expected one {wanted}")
            samples += found
        return samples

    def load(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        return self.loader(path), target

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in folders `root/class/.../name.png`, as PIL images in RGB; the folder's name is the class.

    Args:
        root, transform, target_transform, is_valid_file, allow_empty: as for `DatasetFolder`.
        loader: makes an image of a path; Pillow does by default.

    Source: `torchvision.datasets.ImageFolder`.
    """

    def __init__(
        self, root: Folder, transform: Transform = None, target_transform: Transform = None,
        loader: Callable[[str], Any] = default_loader, is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):  # fmt: skip
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
