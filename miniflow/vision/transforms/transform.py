"""Transforms: what is called with an image. Those of a function are one line; some call other transforms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.errors import ArgumentTypeError
from miniflow.nn.arguments import ExplainsArguments, check_range
from miniflow.nn.modules.module import Module
from miniflow.ops.generator import default_generator
from miniflow.vision.transforms import functional as F
from miniflow.vision.transforms.image import Image, get_dimensions, require


def happens(p: float) -> bool:
    """True with probability p. Random numbers of all transforms are from flow's default generator."""
    return default_generator.numpy().random() < p


class Transform(ExplainsArguments, Module):
    """Base: a module without parameters, which can be pickled.

    Args:
        arguments: attributes, which `repr` shows; `locals()` in a constructor, of which `self` is left out.
    """

    __reduce_ex__ = object.__reduce_ex__

    def __init__(self, arguments: dict[str, Any]):
        super().__init__()
        vars(self).update({name: value for name, value in arguments.items() if name not in ("self", "__class__")})
        if "p" in arguments:
            check_range(self, (0, 1), p=self.p)

    def extra_repr(self) -> str:
        own = {name: value for name, value in vars(self).items() if name[0] != "_" and name != "training"}
        return ", ".join(f"{name}={getattr(value, 'value', value)}" for name, value in own.items())


class FunctionTransform(Transform):
    """Base: applies a function of an image and other arguments, which are those of the constructor.

    `class RandomInvert(FunctionTransform, of=F.invert, p=0.5)` also has `p`, the probability of doing so.

    >>> from miniflow.vision import transforms
    >>> transforms.RandomSolarize(threshold=128)
    RandomSolarize(threshold=128, p=0.5)
    """

    def __init_subclass__(cls, of: Callable | None = None, **defaults: Any):
        super().__init_subclass__()
        if of is None:
            return  # as the class that it is derived from
        _, *parameters = inspect.signature(of).parameters.values()
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters += [inspect.Parameter(name, kind, default=value) for name, value in defaults.items()]
        cls.function, cls.__signature__ = staticmethod(of), inspect.Signature(parameters)

    def __init__(self, *args: Any, **kwargs: Any):
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(f"{self._get_name()}: {error}; expected {self.__signature__}") from None
        bound.apply_defaults()
        super().__init__(bound.arguments)

    def forward(self, img: Image) -> Any:
        """Args: img: an image of Pillow or a tensor (..., C, H, W). Returns: another one."""
        options = {name: getattr(self, name) for name in self.__signature__.parameters}
        if "p" in options and not happens(options.pop("p")):
            return img
        return self.function(img, **options)


def gray(img: Image) -> Image:
    """Gray, in as many channels as before."""
    return F.rgb_to_grayscale(img, get_dimensions(img)[0])


def center(img: Image, size: int | Sequence[int]) -> Image:
    """`center_crop`, with the name that the size has as an argument of transforms."""
    return F.center_crop(img, size)


def solarized(img: Image) -> Image:
    """The brighter half of all bytes inverted."""
    return F.solarize(img, 128)


class ToTensor(FunctionTransform, of=F.to_tensor):
    """Image or array (H, W, C) to a tensor (C, H, W), of bytes from 0 to 1. Source: `torchvision.transforms`."""


class PILToTensor(FunctionTransform, of=F.pil_to_tensor):
    """Image to the tensor (C, H, W) of its bytes. Source: `torchvision.transforms`."""


class ToPILImage(FunctionTransform, of=F.to_pil_image):
    """Tensor (C, H, W) or array (H, W, C) to an image. Source: `torchvision.transforms`."""


class ConvertImageDtype(FunctionTransform, of=F.convert_image_dtype):
    """Another dtype, and its range. Source: `torchvision.transforms`."""


class Normalize(FunctionTransform, of=F.normalize):
    """(x - mean) / std for each channel of a tensor. Source: `torchvision.transforms`."""


class Resize(FunctionTransform, of=F.resize):
    """Another size (h, w), or another length of the shorter side. Source: `torchvision.transforms`.

    >>> import miniflow as flow
    >>> flow.vision.transforms.Resize(8)(flow.zeros(3, 4, 6)).shape
    miniflow.Size([3, 8, 12])
    """


Scale = Resize  # flowvision's name


class CenterCrop(FunctionTransform, of=center):
    """The part (h, w) in the middle. Source: `torchvision.transforms`."""


class FiveCrop(FunctionTransform, of=F.five_crop):
    """A tuple of the four corners (h, w) and the middle. Source: `torchvision.transforms`."""


class TenCrop(FunctionTransform, of=F.ten_crop):
    """The five crops of an image, and of its mirror image. Source: `torchvision.transforms`."""


class Pad(FunctionTransform, of=F.pad):
    """A border. Source: `torchvision.transforms`."""


class Grayscale(FunctionTransform, of=F.rgb_to_grayscale):
    """Gray, in one channel or three. Source: `torchvision.transforms`."""


class RandomGrayscale(FunctionTransform, of=gray, p=0.1):
    """Gray, in as many channels as before, with probability p. Source: `torchvision.transforms`."""


class RandomHorizontalFlip(FunctionTransform, of=F.hflip, p=0.5):
    """Left and right exchanged, with probability p. Source: `torchvision.transforms`."""


class RandomVerticalFlip(FunctionTransform, of=F.vflip, p=0.5):
    """Top and bottom exchanged, with probability p. Source: `torchvision.transforms`."""


class RandomInvert(FunctionTransform, of=F.invert, p=0.5):
    """Black and white exchanged, with probability p. Source: `torchvision.transforms`."""


class RandomPosterize(FunctionTransform, of=F.posterize, p=0.5):
    """The upper bits of each byte, with probability p. Source: `torchvision.transforms`."""


class RandomSolarize(FunctionTransform, of=F.solarize, p=0.5):
    """What is at least `threshold` is inverted, with probability p. Source: `torchvision.transforms`."""


class Solarization(FunctionTransform, of=solarized, p=0.1):
    """The brighter half of all bytes is inverted, with probability p. Source: `flowvision.transforms`."""


class RandomAdjustSharpness(FunctionTransform, of=F.adjust_sharpness, p=0.5):
    """Blurred (factor 0) or sharpened (2), with probability p. Source: `torchvision.transforms`."""


class RandomAutocontrast(FunctionTransform, of=F.autocontrast, p=0.5):
    """Stretched from black to white, with probability p. Source: `torchvision.transforms`."""


class RandomEqualize(FunctionTransform, of=F.equalize, p=0.5):
    """All brightnesses equally frequent, with probability p. Source: `torchvision.transforms`."""


class Lambda(Transform):
    """Calls a function. Source: `torchvision.transforms`."""

    def __init__(self, lambd: Callable[[Any], Any]):
        require(callable(lambd), "Lambda", "a function", ArgumentTypeError, lambd=lambd)
        super().__init__(locals())

    def forward(self, img: Any) -> Any:
        return self.lambd(img)


class Compose(Transform):
    """Calls transforms one after the other.

    >>> import miniflow as flow
    >>> from miniflow.vision import transforms
    >>> both = transforms.Compose([transforms.CenterCrop(2), transforms.Normalize(0.5, 0.5)])
    >>> both(flow.ones(1, 4, 4)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]

    Source: `torchvision.transforms.Compose`.
    """

    def __init__(self, transforms: Sequence[Callable]):
        super().__init__(locals())
        fits = hasattr(transforms, "__len__") and all(map(callable, transforms))
        require(fits, self._get_name(), "a list of transforms", ArgumentTypeError, transforms=transforms)

    def forward(self, img: Any) -> Any:
        return self.called(img, range(len(self.transforms)))

    def called(self, img: Any, order: Sequence[int]) -> Any:
        """The image after transforms number `order`."""
        for i in order:
            img = self.transforms[i](img)
        return img

    def extra_repr(self) -> str:
        others = [f"{name}={value}" for name, value in vars(self).items() if name == "p"]
        return "\n".join([*map(repr, self.transforms), *others])


class RandomApply(Compose):
    """Calls all transforms or none, with probability p. Source: `torchvision.transforms`."""

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5):
        super().__init__(transforms)
        check_range(self, (0, 1), p=p)
        self.p = p

    def forward(self, img: Any) -> Any:
        return super().forward(img) if happens(self.p) else img


class RandomOrder(Compose):
    """Calls all transforms, in random order. Source: `torchvision.transforms`."""

    def forward(self, img: Any) -> Any:
        return self.called(img, default_generator.numpy().permutation(len(self.transforms)))


class RandomChoice(Compose):
    """Calls one of the transforms, chosen with weights p, or equally often. Source: `torchvision.transforms`."""

    def __init__(self, transforms: Sequence[Callable], p: Sequence[float] | None = None):
        super().__init__(transforms)
        self.p = p
        require(len(transforms) > 0, "RandomChoice", "at least one transform", transforms=transforms)
        fits = p is None or (len(p) == len(transforms) and min(p) >= 0 and sum(p) > 0)
        require(fits, "RandomChoice", f"{len(transforms)} weights of at least 0, not all 0", p=p)

    def forward(self, img: Any) -> Any:
        p = None if self.p is None else np.array(self.p) / sum(self.p)
        return self.called(img, [default_generator.numpy().choice(len(self.transforms), p=p)])
