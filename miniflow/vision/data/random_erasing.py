"""Random erasing: rectangles of an image become black or noise. Zhong et al. 2017, "Random Erasing"."""

from __future__ import annotations

import math

import numpy as np

from miniflow.nn.arguments import ExplainsArguments, check_choice
from miniflow.ops.creation import tensor
from miniflow.ops.generator import default_generator
from miniflow.tensor import Tensor


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
        self.probability, self.area, self.mode, self.num_splits = probability, (min_area, max_area), mode, num_splits
        self.log_aspect = math.log(min_aspect), math.log(max_aspect or 1 / min_aspect)
        self.min_count, self.max_count = min_count, max_count or min_count

    def __call__(self, input: Tensor) -> Tensor:
        """Args: input (C, H, W) or (N, C, H, W). Returns: a copy, in which rectangles are erased."""
        x, draw = input.clone(), default_generator.numpy()
        images = x if x.ndim == 4 else x[None]
        for image in images[len(images) // self.num_splits if self.num_splits > 1 else 0 :]:
            self.erase(image, draw)
        return x

    def erase(self, image: Tensor, draw: np.random.Generator) -> None:
        """Erase rectangles of one image (C, H, W), in place."""
        channels, height, width = image.shape
        if draw.random() > self.probability:
            return
        count = self.min_count
        if count < self.max_count:
            count = draw.integers(count, self.max_count, endpoint=True).item()
        for _ in range(count):
            for _ in range(10):  # attempts to find a rectangle that is smaller than the image
                area = draw.uniform(*self.area) * height * width / count
                aspect = math.exp(draw.uniform(*self.log_aspect))
                h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
                if h < height and w < width:
                    top, left = draw.integers(height - h + 1).item(), draw.integers(width - w + 1).item()
                    image[:, top : top + h, left : left + w] = self.pixels((channels, h, w), draw, image)
                    break

    def pixels(self, shape: tuple[int, int, int], draw: np.random.Generator, like: Tensor) -> Tensor | float:
        """What a rectangle (C, h, w) becomes."""
        if self.mode == "const":
            return 0.0
        values = draw.standard_normal(shape if self.mode == "pixel" else (shape[0], 1, 1))
        return tensor(values, dtype=like.dtype, device=like.device)
