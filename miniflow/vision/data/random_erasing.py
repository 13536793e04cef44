"""Random erasing: rectangles of an image become black or noise. Zhong et al. 2017, "Random Erasing"."""

from __future__ import annotations

import numpy as np

from miniflow.nn.arguments import ExplainsArguments, check_choice
from miniflow.ops.creation import tensor
from miniflow.ops.generator import default_generator
from miniflow.tensor import Tensor
from miniflow.vision.transforms.augmentation import random_part


class RandomErasing(ExplainsArguments):
    """Erases random rectangles of images that are normalized already.

    Args:
        probability: that an image is changed.
        min_area, max_area: of a rectangle, as shares of the image's, which are divided by how many there are.
        min_aspect, max_aspect: limits of height / width; `max_aspect` is 1 / `min_aspect` by default.
        mode: "const": zeros; "rand": one random colour; "pixel": a random colour for each pixel; of the standard normal
            distribution.
        min_count, max_count: limits of how many rectangles; `max_count` is `min_count` by default.
        num_splits: the first batch_size / num_splits images of a batch stay as they are, if it is above 1.

    Raises:
        ArgumentError: for another mode.

    >>> import miniflow as flow
    >>> x = RandomErasing(1.0)(flow.ones(3, 16, 16))
    >>> bool((x == 0).any()), bool((x[0] == x[2]).all())
    (True, True)

    Source: timm's `RandomErasing`, which changes its argument.
    """

    def __init__(
        self, probability: float = 0.5, min_area: float = 0.02, max_area: float = 1 / 3, min_aspect: float = 0.3,
        max_aspect: float | None = None, mode: str = "const", min_count: int = 1, max_count: int | None = None,
        num_splits: int = 0,
    ):  # fmt: skip
        check_choice(self, ["const", "rand", "pixel"], mode=mode)
        self.probability, self.mode, self.num_splits = probability, mode, num_splits
        self.area, self.ratio = (min_area, max_area), (1 / (max_aspect or 1 / min_aspect), 1 / min_aspect)
        self.count = min_count, max_count or min_count

    def __call__(self, input: Tensor) -> Tensor:
        """Args: input (C, H, W) or (N, C, H, W). Returns: a copy, in which rectangles are erased."""
        x = input.clone()
        images = x if x.ndim == 4 else x[None]
        for image in images[len(images) // self.num_splits if self.num_splits > 1 else 0 :]:
            self.erase(image)
        return x

    def erase(self, image: Tensor) -> None:
        """Erase rectangles of one image (C, H, W), in place."""
        draw, (channels, height, width) = default_generator.numpy(), image.shape
        if draw.random() > self.probability:
            return
        count = draw.integers(*self.count, endpoint=True).item()
        for _ in range(count):
            part = random_part(image, [area / count for area in self.area], self.ratio, (height - 1, width - 1))
            if part is not None:
                top, left, h, w = part
                shape = (channels, h, w) if self.mode == "pixel" else (channels, 1, 1)
                noise = draw.standard_normal(shape, np.float32) if self.mode != "const" else np.zeros(shape, np.float32)
                erased = tensor(noise, dtype=image.dtype, device=image.device)
                image[:, top : top + h, left : left + w] = erased
