"""Mixup and CutMix: each image of a batch is mixed with another one, and so are their labels.

    mixup     x = lam a + (1 - lam) b                           lam ~ Beta(alpha, alpha)
    cutmix    x = a, but for a box with (1 - lam) of the area, which is b's
    label     y = lam y_a + (1 - lam) y_b

Source: Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization"; Yun et al. 2019, "CutMix"; timm's `Mixup`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.nn.arguments import ExplainsArguments, check_choice, check_range
from miniflow.ops.creation import from_numpy, tensor
from miniflow.ops.embedding import one_hot
from miniflow.ops.generator import default_generator
from miniflow.tensor import Tensor

Box = tuple[int, int, int, int]  # the first row and the one after the last, and so for columns


def mixup_target(target: Tensor, num_classes: int, lam: Tensor | float = 1.0, smoothing: float = 0.0) -> Tensor:
    """The labels of a batch that is mixed with itself in reverse order.

    Args:
        target: class indices (N,).
        num_classes: how many there are.
        lam: the share of each image's own label, one number or (N, 1).
        smoothing: the share of each label that is spread evenly over all classes.

    Returns:
        probabilities (N, num_classes).

    >>> import miniflow as flow
    >>> mixup_target(flow.tensor([0, 1]), 2, lam=0.75).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    y = one_hot(target.long(), num_classes).float() * (1 - smoothing) + smoothing / num_classes
    return y * lam + y.flip(0) * (1 - lam)


def cutmix_bbox_and_lam(
    img_shape: Sequence[int], lam: float, ratio_minmax: Sequence[float] | None = None, correct_lam: bool = True,
    draw: np.random.Generator | None = None,
) -> tuple[Box, float]:  # fmt: skip
    """A random box of an image (..., H, W), and the share of the area outside of it.

    Args:
        img_shape: the image's shape.
        lam: the share outside, of a box that has the image's shape and may reach beyond its border.
        ratio_minmax: instead of `lam`, the least and the largest share of height and width; the box is inside.
        correct_lam: return the share that is outside the part of the box in the image, rather than `lam`.
        draw: where the randomness comes from; flow's default generator if it is not given.

    Returns:
        (top, bottom, left, right) and the share.
    """
    draw = draw or default_generator.numpy()
    size = np.array(img_shape[-2:])
    if ratio_minmax is None:
        cut = (size * np.sqrt(1 - lam)).astype(int)
        middle = np.array([draw.integers(n) for n in size])
        low, high = np.clip(middle - cut // 2, 0, size), np.clip(middle + (cut + 1) // 2, 0, size)
    else:
        ends = [[int(n * share) for share in ratio_minmax] for n in size]
        cut = np.array([draw.integers(low, max(high, low + 1)) for low, high in ends])
        low = np.array([draw.integers(n) for n in size - cut + 1])
        high = low + cut
    if correct_lam or ratio_minmax is not None:
        lam = 1 - (high - low).prod().item() / size.prod().item()
    return (*np.stack([low, high], 1).ravel().tolist(),), lam


class Mixup(ExplainsArguments):
    """Mixes a batch with itself in reverse order, by mixup or CutMix.

    Args:
        mixup_alpha: of the Beta distribution of lam; 0 for no mixup.
        cutmix_alpha: the same of CutMix.
        cutmix_minmax: the least and the largest share of height and width of CutMix's boxes, instead of `cutmix_alpha`.
        prob: the probability that a batch, pair or image is mixed.
        switch_prob: the probability of CutMix where there are both.
        mode: "batch": one lam and one box for all; "pair": one for each pair; "elem": one for each image.
        correct_lam: whether lam is what the box in the image leaves, where it reaches beyond the border.
        label_smoothing: the share of each label that is spread evenly over all classes.
        num_classes: how many there are.

    Attributes:
        mixup_enabled: whether to mix at all; labels are smoothed anyway.

    Raises:
        ArgumentError: for another mode, or where there is neither mixup nor CutMix.

    >>> import miniflow as flow
    >>> mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    >>> x, y = mixup(flow.randn(4, 3, 8, 8), flow.tensor([1, 2, 3, 4]))
    >>> x.shape, y.shape
    (miniflow.Size([4, 3, 8, 8]), miniflow.Size([4, 10]))
    """

    def __init__(
        self, mixup_alpha: float = 1.0, cutmix_alpha: float = 0.0, cutmix_minmax: Sequence[float] | None = None,
        prob: float = 1.0, switch_prob: float = 0.5, mode: str = "batch", correct_lam: bool = True,
        label_smoothing: float = 0.1, num_classes: int = 1000,
    ):  # fmt: skip
        check_choice(self, ["batch", "pair", "elem"], mode=mode)
        check_range(self, (0, 1), prob=prob, switch_prob=switch_prob, label_smoothing=label_smoothing)
        low, high = cutmix_minmax or (0, 1)
        if not 0 <= low < high <= 1:
            raise refusal(ArgumentError, "Mixup", "two shares (a, b), 0 <= a < b <= 1", cutmix_minmax=cutmix_minmax)
        cutmix_alpha = cutmix_alpha if cutmix_minmax is None else 1.0
        if not max(mixup_alpha, cutmix_alpha) > 0:
            expected = "one of them above 0, or cutmix_minmax"
            raise refusal(ArgumentError, "Mixup", expected, mixup_alpha=mixup_alpha, cutmix_alpha=cutmix_alpha)
        self.mixup_alpha, self.cutmix_alpha, self.cutmix_minmax = mixup_alpha, cutmix_alpha, cutmix_minmax
        self.mix_prob, self.switch_prob, self.mode, self.correct_lam = prob, switch_prob, mode, correct_lam
        self.label_smoothing, self.num_classes, self.mixup_enabled = label_smoothing, num_classes, True

    def draw_lam(self, count: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """`count` times lam, which is 1 where nothing is mixed, and whether by CutMix."""
        switch_prob = self.switch_prob if min(self.mixup_alpha, self.cutmix_alpha) > 0 else self.cutmix_alpha > 0
        use_cutmix = draw.random(count) < switch_prob
        alpha = np.where(use_cutmix, self.cutmix_alpha, self.mixup_alpha)
        mixed = (draw.random(count) < self.mix_prob) & self.mixup_enabled
        return np.where(mixed, draw.beta(alpha, alpha), 1.0), use_cutmix

    def shares(self, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The share of each pixel (N or 1, 1, H or 1, W or 1) that is an image's own, and lam (N or 1, 1)."""
        n, draw = shape[0], default_generator.numpy()
        if n % 2:
            raise ShapeError(f"Mixup: got a batch of {n} images; expected an even number: use drop_last=True")
        lam, use_cutmix = self.draw_lam({"batch": 1, "pair": n // 2, "elem": n}[self.mode], draw)
        boxed = np.flatnonzero(use_cutmix & (lam < 1))
        own = np.tile(lam[:, None, None, None], (1, 1, *shape[-2:])) if len(boxed) else lam[:, None, None, None]
        for i in boxed:
            box, lam[i] = cutmix_bbox_and_lam(shape, lam[i], self.cutmix_minmax, self.correct_lam, draw)
            own[i] = 1
            own[i, :, box[0] : box[1], box[2] : box[3]] = 0
        if self.mode == "pair":
            own, lam = (np.concatenate([x, x[::-1]]) for x in (own, lam))
        return own.astype(np.float32), lam[:, None].astype(np.float32)

    def __call__(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The mixed batch, and its labels.

        Args:
            x: images (N, C, H, W), N even.
            target: class indices (N,).

        Returns:
            (N, C, H, W), and probabilities (N, num_classes).

        Raises:
            ShapeError: for an odd N, or other labels.
            DTypeError: for images of integers, which cannot be mixed.
        """
        if not x.is_floating_point():
            raise refusal(DTypeError, "Mixup", "floats: use convert_image_dtype", x=x, dtype=x.dtype)
        if target.shape != x.shape[:1]:
            raise refusal(ShapeError, "Mixup", f"class indices ({len(x)},)", target=target)
        own, lam = (tensor(array, dtype=x.dtype, device=x.device) for array in self.shares(x.shape))
        return x * own + x.flip(0) * (1 - own), self.labels(target, lam)

    def labels(self, target: Tensor, lam: Tensor) -> Tensor:
        """The labels of the mixed batch."""
        return mixup_target(target, self.num_classes, lam.to(target.device), self.label_smoothing)


class CutMix(Mixup):
    """CutMix alone.

    Args:
        alpha: of the Beta distribution of lam.
        num_classes: how many there are.
        label_smoothing: 0 unless it is given.
        options: of `Mixup`.
    """

    def __init__(self, alpha: float = 1.0, num_classes: int = 1000, label_smoothing: float = 0.0, **options: Any):
        super().__init__(0.0, alpha, label_smoothing=label_smoothing, num_classes=num_classes, **options)


def fast_collate(batch: Sequence[tuple[Any, Any]]) -> tuple[Tensor, Tensor]:
    """A batch of the bytes of images, which are to become floats on the device where they are used.

    Args:
        batch: (image, class) with images (C, H, W) as uint8 tensors or arrays, or with tuples of several views.

    Returns:
        (N, C, H, W) uint8, and classes (N,) int64; all first views come first, then all second ones.

    Raises:
        DTypeError: for images of other dtypes, or of several shapes.

    Source: timm's `fast_collate`.
    """
    images, target = zip(*batch, strict=True)
    views = list(zip(*images, strict=True)) if isinstance(images[0], tuple) else [images]
    pixels = [np.asarray(image) for view in views for image in view]
    if {(image.shape, image.dtype.name) for image in pixels} != {(pixels[0].shape, "uint8")}:
        kinds = sorted({f"{image.dtype.name} {image.shape}" for image in pixels})
        raise DTypeError(f"fast_collate: got images {kinds}; expected uint8 ones of one shape, as PILToTensor makes")
    return from_numpy(np.stack(pixels)), from_numpy(np.array([int(label) for label in target] * len(views)))


class FastCollateMixup(Mixup):
    """Mixes the bytes of a batch while it is collated: `DataLoader(dataset, collate_fn=FastCollateMixup(...))`.

    Source: timm's `FastCollateMixup`.
    """

    def __call__(self, batch: Sequence[tuple[Any, Any]], _: Any = None) -> tuple[Tensor, Tensor]:
        images, target = fast_collate(batch)
        x = images.numpy().astype(np.float32)
        own, lam = self.shares(x.shape)
        return from_numpy(np.rint(x * own + x[::-1] * (1 - own)).astype(np.uint8)), self.labels(target, from_numpy(lam))
