"""CIFAR-10 and CIFAR-100: small photographs, from the binary version of their files.

    record    CIFAR-10: label; CIFAR-100: coarse label, fine label; then 32 rows of 32 bytes red, as many green and blue

The version for Python is pickled, and opening a pickle runs what is in it.

Source: Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
"""

from __future__ import annotations

import numpy as np

from miniflow.errors import DataError
from miniflow.vision.datasets.vision import TrainTestDataset, fetch_archive


class CIFAR10(TrainTestDataset):
    """60,000 photographs of 10 classes, 50,000 to train on: PIL images of 32 by 32 pixels in RGB.

    `root` is the folder with `cifar-10-batches-bin`, the folder in the archive of the binary version, which `download`
    fetches there and unpacks. `data` (N, 32, 32, 3) is a NumPy array, `targets` a list. The other arguments, and the
    errors, are those of `TrainTestDataset`.

    Source: `torchvision.datasets.CIFAR10`, which reads the pickled version.
    """

    url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    tgz_md5 = "c32a1d4ab5d03f1284b67883e8d87530"
    base_folder = "cifar-10-batches-bin"
    train_list = [f"data_batch_{i}.bin" for i in range(1, 6)]
    test_list = ["test_batch.bin"]
    meta = "batches.meta.txt"
    label_bytes = 1

    def download(self) -> None:
        """Fetch and unpack the archive."""
        fetch_archive(self.url, self.root, self.tgz_md5)

    def read(self) -> tuple[np.ndarray, list[int]]:
        """The pixels and the classes."""
        folder, size = self.root / self.base_folder, self.label_bytes + 3072
        self.classes = self.existing(folder / self.meta).read_text(encoding="utf-8").split()
        records = []
        for name in self.train_list if self.train else self.test_list:
            content = np.fromfile(self.existing(folder / name), np.uint8)
            if content.size % size:
                got = f"{folder / name} has {content.size} bytes"
                raise DataError(f"{type(self).__name__}: {got}; expected records of {size}: fetch it again")
            records.append(content.reshape(-1, size))
        labels, pixels = np.split(np.concatenate(records), [self.label_bytes], axis=1)
        return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels[:, -1].tolist()


class CIFAR100(CIFAR10):
    """60,000 photographs of 100 classes, from the folder `cifar-100-binary`; as `CIFAR10`.

    Source: `torchvision.datasets.CIFAR100`.
    """

    url = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
    tgz_md5 = "03b5dce01913d631647c71ecec9e9cb8"
    base_folder = "cifar-100-binary"
    train_list = ["train.bin"]
    test_list = ["test.bin"]
    meta = "fine_label_names.txt"
    label_bytes = 2
