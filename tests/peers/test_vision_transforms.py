"""Transforms beside torchvision's: the same bytes of images of Pillow, the same tensors, the same distributions."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import miniflow as flow
from benchmarks.models import declare_operators
from miniflow.errors import DTypeError
from miniflow.vision import transforms
from miniflow.vision.transforms import autoaugment
from miniflow.vision.transforms import functional as F

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install miniflow-edu[vision]")
declare_operators(torch)
theirs = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")

DRAW = np.random.default_rng(7)
# smooth, so that a position that is rounded otherwise changes little; with flat borders
WAVES = np.add.outer(np.sin(np.arange(37) / 5), np.cos(np.arange(46) / 7))[..., None] * [40, 30, -50] + 120
PIXELS = (WAVES + DRAW.uniform(-20, 20, WAVES.shape)).clip(0, 255).astype(np.uint8)  # (37, 46, 3)
NEAREST, BILINEAR, BICUBIC, LANCZOS = "NEAREST", "BILINEAR", "BICUBIC", "LANCZOS"
CORNERS = [[0, 0], [45, 0], [45, 36], [0, 36]]
MOVED = [[3, 2], [40, 5], [44, 30], [1, 33]]

# name, arguments after the image, whether tensors have it, too
CASES = [
    ("hflip", (), {}), ("vflip", (), {}), ("invert", (), {}), ("autocontrast", (), {}), ("equalize", (), {}),
    *[("posterize", (bits,), {}) for bits in (1, 3, 8)],
    ("solarize", (100,), {}), ("solarize", (0,), {}),
    *[(f"adjust_{name}", (x,), {}) for name in ("brightness", "contrast", "saturation", "sharpness")
      for x in (0, 0.3, 1, 1.7, 2)],
    *[("adjust_hue", (x,), {}) for x in (-0.5, -0.21, 0, 0.1, 0.5)],
    ("adjust_gamma", (0.7,), {}), ("adjust_gamma", (2.2, 1.3), {}),
    ("rgb_to_grayscale", (), {}), ("rgb_to_grayscale", (3,), {}),
    ("gaussian_blur", (5,), {}), ("gaussian_blur", ([3, 7],), {"sigma": [0.8, 2.5]}), ("gaussian_blur", (3, 1.5), {}),
    *[("resize", (size,), {"interpolation": mode}) for size in (20, [50, 31], [37, 60], [12])
      for mode in (NEAREST, BILINEAR, BICUBIC)],
    ("resize", (30,), {"max_size": 33}), ("resize", ([20, 20],), {"interpolation": LANCZOS}),
    ("resize", ([20, 25],), {"interpolation": "NEAREST_EXACT"}),
    *[("pad", (width,), {"padding_mode": mode}) for width in (3, [2, 4], [1, 2, 3, 4], [-2, 3, 0, -4])
      for mode in ("constant", "edge", "reflect", "symmetric")],
    ("pad", ([3],), {"fill": 90}),
    *[("crop", box, {}) for box in ((3, 4, 20, 30), (-5, -3, 60, 60), (30, 40, 20, 20), (0, 0, 37, 46))],
    *[("center_crop", (size,), {}) for size in (21, [50, 20], [20, 61], [37, 46], [60])],
    ("resized_crop", (3, 4, 20, 25, [15, 30]), {}),
    ("five_crop", ([20, 11],), {}), ("ten_crop", (20,), {}), ("ten_crop", (20, True), {}),
    *[("rotate", (angle,), {"interpolation": mode, "expand": expand, "fill": fill})
      for angle in (17, -133, 180) for mode in (NEAREST, BILINEAR) for expand in (False, True) for fill in (None, 70)],
    ("rotate", (25,), {"center": [10, 5], "fill": [1, 2, 3]}),
    *[("affine", (angle, shift, scale, shear), {"interpolation": mode, **more})
      for mode in (NEAREST, BILINEAR)
      for angle, shift, scale, shear, more in (
          (13, [3, -2], 0.8, [5, -7], {}), (-41.5, [0, 0], 1.3, 10.0, {"fill": 55}), (0, [5, 4], 1.0, [0, 0], {}),
          (7.0, [1, 2], 1.0, [3.0], {"center": [0, 0], "fill": [200, 100, 50]}),
      )],
    *[("perspective", (CORNERS, MOVED), {"interpolation": mode, "fill": fill})
      for mode in (NEAREST, BILINEAR) for fill in (None, [9, 99, 200])],
    ("get_dimensions", (), {}), ("get_image_size", (), {}), ("get_image_num_channels", (), {}),
]  # fmt: skip
ONLY_IMAGES = {LANCZOS}
ONLY_BYTES = {"posterize", "equalize"}
GRAY_3 = "rgb_to_grayscale", (3,)  # of a gray tensor torchvision makes one channel, of a gray image three
# bytes halfway between two: which is nearer depends on the order in which sums of float32 are rounded
TIES = {
    "resize": 0.02,
    "resized_crop": 0.01,
    "adjust_hue": 0.001,
    "rotate": 0.001,
    "affine": 0.001,
    "perspective": 0.001,
}


def of_library(library, kwargs):
    """Options with a library's interpolation modes."""
    modes = library.InterpolationMode
    return {name: modes[x] if name == "interpolation" else x for name, x in kwargs.items()}


def assert_equal(ours, expected, tolerance=0.0, ties=0.0):
    """Images have the same bytes, tensors the same dtype and values; a share `ties` may be rounded otherwise."""
    if isinstance(expected, tuple):
        assert len(ours) == len(expected)
        for a, b in zip(ours, expected, strict=True):
            assert_equal(a, b, tolerance, ties)
    elif isinstance(expected, pillow.Image):
        assert (ours.mode, ours.size) == (expected.mode, expected.size)
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(expected))
        assert ours.getpalette() == expected.getpalette()
    elif isinstance(expected, torch.Tensor):
        assert str(ours.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
        difference = np.abs(ours.numpy().astype(float) - expected.numpy())
        assert ours.shape == expected.shape and difference.max() <= max(tolerance, ties > 0)
        np.testing.assert_array_less((difference > tolerance).mean(), max(ties, 1e-9))
    else:
        assert ours == expected


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=lambda x: str(x).replace(" ", ""))
def test_images_of_pillow(name, args, kwargs):
    function, expected = getattr(F, name), getattr(theirs.functional, name)
    for mode in ("RGB", "L", "P"):
        if mode == "P" and name not in ("posterize", "hflip", "crop"):
            continue
        if mode == "L" and any(isinstance(x, list) for key, x in kwargs.items() if key == "fill"):
            continue
        img = pillow.fromarray(PIXELS).convert(mode)
        assert_equal(
            function(img, *args, **of_library(transforms, kwargs)), expected(img, *args, **of_library(theirs, kwargs))
        )


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=lambda x: str(x).replace(" ", ""))
def test_tensors(name, args, kwargs, dtype):
    if kwargs.get("interpolation") in ONLY_IMAGES or (name in ONLY_BYTES and dtype != "uint8"):
        assert name in ("resize", "posterize", "equalize")
        return
    channels = np.stack([PIXELS, PIXELS[::-1]]).transpose(0, 3, 1, 2)  # (2, 3, H, W)
    scale = 1 if dtype == "uint8" else 255
    if name == "solarize":
        args = (args[0] / scale,)
    for array in (channels, channels[0], channels[:, :1]):
        if array.shape[1:2] == (1,) and (isinstance(kwargs.get("fill"), list) or (name, args) == GRAY_3):
            continue
        array = (array / scale).astype(dtype) if scale > 1 else np.ascontiguousarray(array)
        ours = getattr(F, name)(flow.tensor(array), *args, **of_library(transforms, kwargs))
        expected = getattr(theirs.functional, name)(torch.tensor(array), *args, **of_library(theirs, kwargs))
        if dtype == "uint8":
            assert_equal(ours, expected, ties=TIES.get(name, 0) if kwargs.get("interpolation") != NEAREST else 0)
        else:
            assert_equal(ours, expected, 1e-5 * max(1, np.abs(kwargs.get("fill") or 1).max()))


def test_into_each_other():
    """`to_tensor`, `pil_to_tensor` and `to_pil_image`, of each mode and dtype."""
    for mode in ("RGB", "L", "1", "RGBA", "CMYK", "YCbCr", "LA", "I", "F", "I;16", "P", "HSV"):
        img = pillow.fromarray(PIXELS).convert("L" if mode in ("I;16", "LA", "1") else "RGB").convert(mode)
        assert_equal(F.to_tensor(img), theirs.functional.to_tensor(img))
        if mode != "I;16":
            assert_equal(F.pil_to_tensor(img), theirs.functional.pil_to_tensor(img))
        else:
            with pytest.raises(DTypeError, match=r"pil_to_tensor: got mode='I;16'; .*pic.convert\('I'\)"):
                F.pil_to_tensor(img)
    for array in (PIXELS, PIXELS[..., 0], PIXELS[..., :1] / 255, PIXELS.astype(np.float32), PIXELS.astype(np.int64)):
        assert_equal(F.to_tensor(array), theirs.functional.to_tensor(array))
    kinds = [("uint8", n, mode) for n, mode in ((1, "L"), (2, "LA"), (3, "HSV"), (4, "CMYK"), (3, None), (4, None))]
    for dtype, channels, mode in (
        *kinds,
        ("int16", 1, None),
        ("int32", 1, "I"),
        ("float32", 1, "F"),
        ("float64", 3, None),
    ):
        array = DRAW.uniform(0, 1 if dtype[0] == "f" else 255, (channels, 5, 7)).astype(dtype)
        expected = theirs.functional.to_pil_image(torch.tensor(array), mode)
        assert_equal(F.to_pil_image(flow.tensor(array), mode), expected)
        assert_equal(F.to_pil_image(array.transpose(1, 2, 0), mode), expected)


def test_dtypes():
    names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64"]
    for old in names:
        top = 1 if old[0] in "fb" else min(np.iinfo(old).max, 10**6)
        array = np.concatenate([[0, top], DRAW.uniform(0, top, 20)]).astype(old)
        for new in names:
            if old[0] == "f" and (new == "int64" or (old, new) == ("float32", "int32")):
                continue
            ours = F.convert_image_dtype(flow.tensor(array), getattr(flow, new))
            assert_equal(ours, theirs.functional.convert_image_dtype(torch.tensor(array), getattr(torch, new)), 1e-7)


@pytest.mark.parametrize("inplace", [False, True])
def test_normalize_and_erase(inplace):
    array = DRAW.uniform(0, 1, (2, 3, 9, 8)).astype(np.float32)
    ours, expected = flow.tensor(array), torch.tensor(array)
    for mean, std in (([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]), ([0.5], [2.0])):
        results = F.normalize(ours, mean, std, inplace), theirs.functional.normalize(expected, mean, std, inplace)
        assert_equal(*results, 1e-6)
        assert_equal(ours, expected, 1e-6)
    value = DRAW.uniform(0, 1, (3, 4, 2)).astype(np.float32)
    box = (2, 5, 4, 2)
    results = (
        F.erase(ours, *box, flow.tensor(value), inplace),
        theirs.functional.erase(expected, *box, torch.tensor(value), inplace),
    )
    assert_equal(*results, 1e-6)
    assert_equal(ours, expected, 1e-6)


def same_distribution(ours, expected):
    """Two samples (n, numbers) differ no more than those of one distribution: Kolmogorov and Smirnov's test."""
    ours, expected = np.array(ours, float), np.array(expected, float)
    assert ours.shape == expected.shape
    for a, b in zip(ours.T, expected.T, strict=True):
        places = np.concatenate([a, b])
        distance = np.abs(np.searchsorted(np.sort(a), places, "right") - np.searchsorted(np.sort(b), places, "right"))
        np.testing.assert_array_less(distance.max() / len(a), 1.95 * math.sqrt(2 / len(a)))


def flat(x):
    """The numbers in nested sequences; None is 0."""
    if isinstance(x, list | tuple | torch.Tensor):
        return [n for item in x for n in flat(item)] if getattr(x, "ndim", 1) else [float(x)]
    return [0.0 if x is None else float(x)]


RANDOM = [  # class, arguments of the constructor, arguments of get_params
    ("RandomCrop", (20,), ("img", (20, 11))),
    ("RandomResizedCrop", (20,), ("img", (0.08, 1.0), (3 / 4, 4 / 3))),
    ("RandomResizedCrop", ([15, 20],), ("img", (0.5, 1.0), (1.5, 4.0))),
    ("RandomResizedCrop", (20,), ("img", (1.0, 1.0), (0.1, 0.5))),
    ("RandomResizedCrop", (20,), ("img", (1.0, 1.0), (3.0, 4.0))),
    ("ColorJitter", (0.4, 0.3, 0.6, 0.2), ((0.6, 1.4), (0.7, 1.3), (0.4, 1.6), (-0.2, 0.2))),
    ("ColorJitter", (0, (0.5, 0.7), 0, 0.5), (None, (0.5, 0.7), None, (-0.5, 0.5))),
    ("RandomRotation", (30,), ([-30.0, 30.0],)),
    ("RandomRotation", ([10, 20], 2, True), ([10.0, 20.0],)),
    ("RandomAffine", (30,), ([-30.0, 30.0], None, None, None, [46, 37])),
    (
        "RandomAffine",
        (0, (0.1, 0.3), (0.7, 1.2), (-5, 5, 3, 9), 2, 9),
        ([0.0, 0.0], (0.1, 0.3), (0.7, 1.2), [-5.0, 5.0, 3.0, 9.0], [46, 37]),
    ),
    ("RandomAffine", (5, None, None, 8), ([-5.0, 5.0], None, None, [-8.0, 8.0], [46, 37])),
    ("RandomPerspective", (0.5, 1.0), (46, 37, 0.5)),
    ("RandomErasing", (1.0,), ("tensor", (0.02, 0.33), (0.3, 3.3), [0.0])),
    ("RandomErasing", (1.0,), ("tensor", (0.4, 0.9), (0.5, 3.3), [0.0])),
    ("GaussianBlur", (5,), (0.1, 2.0)),
]


@pytest.mark.parametrize(("name", "args", "parameters"), RANDOM, ids=lambda x: str(x).replace(" ", ""))
def test_random_parameters(name, args, parameters, monkeypatch):
    """The same distribution; and with torchvision's parameters the same pixels."""
    flow.manual_seed(1)
    torch.manual_seed(1)
    ours, expected = getattr(transforms, name), getattr(theirs, name)
    img = pillow.fromarray(PIXELS)
    tensors = flow.zeros(3, 37, 46), torch.zeros(3, 37, 46)

    def numbers(cls, tensor):
        given = [{"img": img, "tensor": tensor}.get(x, x) if isinstance(x, str) else x for x in parameters]
        found = cls.get_params(*given)
        return flat(list(found[:4]) if name == "RandomErasing" else found)

    same_distribution(
        [numbers(ours, tensors[0]) for _ in range(1000)], [numbers(expected, tensors[1]) for _ in range(1000)]
    )
    of_ours, of_theirs = ours(*args), expected(*args)
    for _ in range(3):
        given = [{"img": img, "tensor": tensors[1]}.get(x, x) if isinstance(x, str) else x for x in parameters]
        drawn = expected.get_params(*given)
        for cls in (ours, expected):
            monkeypatch.setattr(cls, "get_params", staticmethod(lambda *_, drawn=drawn, **__: drawn))
        if name == "RandomErasing":
            array = np.ascontiguousarray(PIXELS.transpose(2, 0, 1) / np.float32(255))
            monkeypatch.setattr(
                ours, "get_params", staticmethod(lambda *_, drawn=drawn: (*drawn[:4], flow.tensor(drawn[4].numpy())))
            )
            assert_equal(of_ours(flow.tensor(array)), of_theirs(torch.tensor(array)))
        else:
            assert_equal(of_ours(img), of_theirs(img))
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("name", "args"),
    [("RandomHorizontalFlip", ()), ("RandomVerticalFlip", (0.2,)), ("RandomGrayscale", ()), ("RandomInvert", (0.7,)),
     ("RandomPosterize", (3,)), ("RandomSolarize", (100, 0.3)), ("RandomAdjustSharpness", (2,)),
     ("RandomAutocontrast", (0.4,)), ("RandomEqualize", (0.9,))],
)  # fmt: skip
def test_probabilities(name, args):
    flow.manual_seed(2)
    torch.manual_seed(2)
    img = pillow.fromarray(PIXELS)
    made = [getattr(library, name)(*args) for library in (transforms, theirs)]
    results = [[transform(img).tobytes() for _ in range(1000)] for transform in made]
    assert set(results[0]) == set(results[1]) and len(set(results[0])) == 2
    same_distribution(*[[[x == img.tobytes()] for x in result] for result in results])


def test_chosen_and_ordered():
    flow.manual_seed(3)
    adds = [transforms.Lambda(lambda x, n=n: [*x, n]) for n in range(3)]
    orders = [tuple(transforms.RandomOrder(adds)([])) for _ in range(600)]
    counts = [orders.count(order) for order in sorted(set(orders))]
    assert len(counts) == 6 and 70 < min(counts) and max(counts) < 130
    chosen = [transforms.RandomChoice(adds, p=[1, 2, 0])([])[0] for _ in range(600)]
    assert 2 not in chosen and 160 < chosen.count(0) < 240
    assert {transforms.RandomChoice(adds)([])[0] for _ in range(40)} == {0, 1, 2}
    applied = [len(transforms.RandomApply(adds, p=0.3)([])) for _ in range(600)]
    assert set(applied) == {0, 3} and 140 < applied.count(3) < 220


# policies


@pytest.mark.parametrize("name", ["AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"])
def test_magnitudes_of_policies(name):
    """All magnitudes of all operations, as torchvision's tables have them."""
    flow.manual_seed(4)
    made, expected = getattr(transforms, name)(), getattr(theirs, name)()
    spaces = {
        "AutoAugment": (10, (37, 46)),
        "RandAugment": (31, (37, 46)),
        "TrivialAugmentWide": (31,),
        "AugMix": (10, (37, 46)),
    }
    space, found = expected._augmentation_space(*spaces[name]), {}
    if name == "RandAugment":
        made.num_ops = 2000
    if name == "AugMix":
        made.severity, made.chain_depth = 10, 2000
    for _ in range(6000 if name in ("AutoAugment", "TrivialAugmentWide") else 2):
        for operation, magnitude in made.choose(37, 46):
            found.setdefault(operation, []).append(magnitude)
    for operation, magnitudes in found.items():
        table, is_signed = space[operation]
        magnitudes = np.round(magnitudes) if operation == "Posterize" else magnitudes  # as the operation does
        table = np.atleast_1d(table.numpy().astype(float))
        np.testing.assert_allclose(
            np.abs(np.subtract.outer(np.abs(magnitudes), table)).min(1), 0, atol=1e-5 * table.max()
        )
        if is_signed and np.abs(magnitudes).max():
            assert 0.35 < (np.array(magnitudes) < 0).mean() < 0.65
    if name == "AutoAugment":
        for policy in transforms.AutoAugmentPolicy:
            pairs = [pair.split("+") for pair in autoaugment.POLICIES[policy.value].split(";")]
            pairs = [
                tuple((n, float(p), int(m[0]) if m else None) for n, p, *m in map(str.split, pair)) for pair in pairs
            ]
            assert pairs == expected._get_policies(theirs.AutoAugmentPolicy(policy.value))
    else:
        assert set(found) == set(space)
    if name in ("RandAugment", "AugMix"):
        counts = [len(x) for x in found.values()]
        assert min(counts) > 0.7 * np.mean(counts) and max(counts) < 1.3 * np.mean(counts)


@pytest.mark.parametrize("name", sorted(autoaugment.OPERATIONS))
def test_operations_of_policies(name):
    from torchvision.transforms.autoaugment import _apply_op

    array = np.ascontiguousarray(PIXELS.transpose(2, 0, 1))
    for magnitude in {"Posterize": (4, 8), "Solarize": (0.0, 85.0, 255.0)}.get(name, (-0.27, 0.0, 0.9)):
        magnitude *= 12 if name in ("Rotate", "TranslateX", "TranslateY") else 1
        for mode in ("NEAREST", "BILINEAR"):
            for fill in (None, [3.0, 90.0, 7.0]):
                options = {"interpolation": transforms.InterpolationMode[mode], "fill": fill}
                ours = [
                    autoaugment.OPERATIONS[name](x, magnitude, **options)
                    for x in (pillow.fromarray(PIXELS), flow.tensor(array))
                ]
                options["interpolation"] = theirs.InterpolationMode[mode]
                for result, x in zip(ours, (pillow.fromarray(PIXELS), torch.tensor(array)), strict=True):
                    assert_equal(result, _apply_op(x, name, magnitude, **options), ties=0.02)


def test_augmix(monkeypatch):
    """The weighted mean of chains, which torchvision's operations compute."""
    from torchvision.transforms.autoaugment import _apply_op

    flow.manual_seed(5)
    made, chains, weights = transforms.AugMix(fill=None), [], []
    for name, record in (("choose", chains), ("weights", weights)):
        method = getattr(made, name)
        monkeypatch.setattr(
            transforms.AugMix, name, lambda self, *args, m=method, r=record: r.append(m(*args)) or r[-1]
        )
    array = np.stack([PIXELS, PIXELS[::-1]]).transpose(0, 3, 1, 2).copy()
    result = made(flow.tensor(array))
    expected = 0.0
    shares = np.concatenate(weights[0], 1)
    for i, chain in enumerate([[], *chains]):
        x = torch.tensor(array)
        for name, magnitude in chain:
            magnitude = round(magnitude) if name == "Posterize" else magnitude
            x = _apply_op(x, name, magnitude, interpolation=theirs.InterpolationMode.BILINEAR, fill=None)
        expected = expected + shares[:, i, None, None, None] * x.numpy()
    np.testing.assert_allclose(shares.sum(1), 1)
    assert len(chains) == 3 and result.dtype is flow.uint8
    assert (
        np.abs(result.numpy() - np.floor(expected)).max() <= 1 and (result.numpy() == np.floor(expected)).mean() > 0.99
    )
    assert made(pillow.fromarray(PIXELS)).size == (46, 37)
    monkeypatch.undo()
    many = np.array([np.concatenate(transforms.AugMix(alpha=0.5).weights(1), 1)[0] for _ in range(1000)])
    torch.manual_seed(5)
    first = torch._sample_dirichlet(torch.full((1000, 2), 0.5)).numpy()
    others = torch._sample_dirichlet(torch.full((1000, 3), 0.5)).numpy() * first[:, 1:]
    same_distribution(many, np.concatenate([first[:, :1], others], 1))


def test_names_and_arguments():
    """All classes and functions of torchvision but those of other lists, and their arguments by name."""
    left_out = {"LinearTransformation", "ElasticTransform"}
    classes = [n for n in (*theirs.transforms.__all__, *theirs.autoaugment.__all__) if n not in left_out]
    assert [n for n in classes if not hasattr(transforms, n)] == []
    for name in classes:
        if name not in ("InterpolationMode", "AutoAugmentPolicy"):
            assert [*inspect.signature(getattr(transforms, name)).parameters] == [
                *inspect.signature(getattr(theirs, name)).parameters
            ], name
    for name in F.__all__:
        if name != "InterpolationMode":
            assert [*inspect.signature(getattr(F, name)).parameters] == [
                *inspect.signature(getattr(theirs.functional, name)).parameters
            ], name
