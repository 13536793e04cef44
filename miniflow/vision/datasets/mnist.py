"""MNIST and its relatives, from their IDX files. `flow.data.mnist` has MNIST as tensors, and 5,000 digits at hand."""

from __future__ import annotations

from pathlib import Path

from miniflow.errors import DataError
from miniflow.ops.creation import tensor
from miniflow.tensor import Tensor
from miniflow.utils.data.idx import read_idx
from miniflow.utils.data.mnist import FILES, MIRROR, present
from miniflow.vision.datasets.vision import TrainTestDataset


class MNIST(TrainTestDataset):
    """Handwritten digits: 60,000 to train on, 10,000 to test on; PIL images of 28 by 28 gray pixels.

    `root` is the folder with `MNIST/raw`, where the IDX files are, compressed as published or plain. `data` (N, 28, 28)
    and `targets` (N,) are tensors, uint8 and int64. The other arguments, and the errors, are those of
    `TrainTestDataset`.

    Source: `torchvision.datasets.MNIST`; LeCun, Bottou, Bengio and Haffner 1998.
    """

    mirror = MIRROR
    files = FILES  # split -> (images, labels), each a name and the checksum of the published file
    classes = [f"{i} - {name}" for i, name in enumerate("zero one two three four five six seven eight nine".split())]

    @property
    def raw_folder(self) -> Path:
        """Where the files are."""
        return self.root / type(self).__name__ / "raw"

    def download(self) -> None:
        """Fetch the files of this split."""
        from miniflow.utils.data.download import download  # here, because urllib takes long to import

        for name, digest in self.files["train" if self.train else "test"]:
            download(self.mirror + name, self.raw_folder / name, digest)

    def read(self) -> tuple[Tensor, Tensor]:
        """The pixels and the classes."""
        files = self.files["train" if self.train else "test"]
        images, labels = (read_idx(self.existing(present(self.raw_folder, name))) for name, _ in files)
        if len(images) != len(labels):
            raise DataError(f"{type(self).__name__}: got {len(images)} images and {len(labels)} labels; expected pairs")
        return Tensor._wrap(images), tensor(labels.tolist(), device="cpu")


FASHION = {  # split -> the MD5 of images and labels
    "train": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
    "test": ("bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
}


class FashionMNIST(MNIST):
    """Clothes from a catalogue, in the format and the numbers of MNIST.

    Source: `torchvision.datasets.FashionMNIST`; Xiao, Rasul and Vollgraf 2017.
    """

    mirror = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    files = {s: [(name, md5) for (name, _), md5 in zip(FILES[s], FASHION[s], strict=True)] for s in FILES}
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
