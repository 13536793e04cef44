"""Random images, for programs that are to run without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow.dtype import uint8
from miniflow.ops.generator import Generator
from miniflow.ops.random import randint
from miniflow.vision.datasets.vision import Transform, VisionDataset
from miniflow.vision.pillow import pillow


class FakeData(VisionDataset):
    """Random PIL images with random classes, the same ones at the same index.

    Args:
        size: how many.
        image_size: (channels, height, width), with 1 or 3 channels.
        num_classes: the classes are 0 to `num_classes - 1`.
        transform, target_transform: called with each image and each class.
        random_offset: added to the index, which seeds the pixels.

    Source: `torchvision.datasets.FakeData`.
    """

    def __init__(
        self, size: int = 1000, image_size: Sequence[int] = (3, 224, 224), num_classes: int = 10,
        transform: Transform = None, target_transform: Transform = None, random_offset: int = 0,
    ):  # fmt: skip
        super().__init__(None, None, transform, target_transform)
        self.size, self.image_size, self.num_classes = size, tuple(image_size), num_classes
        self.random_offset = random_offset

    def load(self, index: int) -> tuple[Any, int]:
        generator = Generator().manual_seed(range(self.size)[index] + self.random_offset)
        pixels = randint(0, 256, self.image_size, generator=generator, dtype=uint8, device="cpu").numpy()
        target = randint(self.num_classes, (1,), generator=generator, device="cpu").item()
        rows = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0).copy()
        return pillow().fromarray(rows), target

    def __len__(self) -> int:
        return self.size
