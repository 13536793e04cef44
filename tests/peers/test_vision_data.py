"""What vision.data does at random beside timm, which is given the same random numbers."""

import importlib
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from checks import assert_close
from models import needed, torch

import miniflow as flow
from miniflow.ops.generator import Generator
from miniflow.vision import data
from miniflow.vision.data import random_erasing
from miniflow.vision.data.auto_augment import LEVELS

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


def timm(part: str) -> ModuleType:
    """A part of timm on torch."""
    needed("timm")
    return importlib.import_module(f"timm.data.{part}")


@pytest.fixture
def same_numbers(monkeypatch):
    """What seeds both libraries: ours take all numbers from one NumPy generator, timm from another one like it."""
    timm("auto_augment")
    current = {}
    monkeypatch.setattr(Generator, "numpy", lambda self: current["ours"])

    def choice(a, size=None, replace=True, p=None):
        chosen = current["timm"].choice(len(a), size, replace, p)
        return a[chosen] if size is None else [a[i] for i in chosen]

    def chosen_by_index(options):
        return options[current["timm"].integers(len(options))]

    of_numpy = SimpleNamespace(
        rand=lambda *size: current["timm"].random(size or None),
        beta=lambda *args, **options: current["timm"].beta(*args, **options),
        dirichlet=lambda alpha: current["timm"].dirichlet(alpha),
        randint=lambda low, high=None, size=None: current["timm"].integers(low, high, size),
        choice=choice,
    )
    of_python = SimpleNamespace(
        random=lambda: current["timm"].random(),
        uniform=lambda low, high: low + (high - low) * current["timm"].random(),
        gauss=lambda mean, std: current["timm"].normal(mean, std),
        randint=lambda low, high: int(current["timm"].integers(low, high, endpoint=True)),
        choice=chosen_by_index,
    )
    numpy = SimpleNamespace(**{**vars(np), "random": of_numpy})
    for part, names in (("mixup", {"np": numpy}), ("random_erasing", {"random": of_python})):
        for name, value in names.items():
            monkeypatch.setattr(timm(part), name, value)
    for name, value in (("np", numpy), ("random", of_python)):
        monkeypatch.setattr(timm("auto_augment"), name, value)
    pillow = timm("auto_augment").ImageOps
    to_bits = pillow.posterize
    monkeypatch.setattr(pillow, "posterize", lambda img, bits: to_bits(img, bits) if bits > 0 else img.point([0] * 768))
    monkeypatch.setattr(
        timm("random_erasing"),
        "_get_pixels",
        lambda per_pixel, colour, shape, **_: torch.tensor(
            current["timm"].standard_normal(shape if per_pixel else (shape[0], 1, 1), np.float32)
            if per_pixel or colour
            else np.zeros((shape[0], 1, 1))
        ),
    )

    def seed(number: int) -> None:
        current.update({name: np.random.Generator(np.random.Philox(number)) for name in ("ours", "timm")})

    seed(0)
    return seed


MIXES = {
    "mixup": {},
    "cutmix": {"mixup_alpha": 0.0, "cutmix_alpha": 1.0},
    "boxes": {"mixup_alpha": 0.0, "cutmix_minmax": (0.2, 0.8)},
    "both": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "prob": 0.7},
    "given lam": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "correct_lam": False, "label_smoothing": 0.0},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("name", MIXES)
def test_mixup(monkeypatch, same_numbers, name, mode, seed):
    same_numbers(seed)
    options = {"num_classes": 5, "mode": mode, **MIXES[name]}
    compare_mixed(monkeypatch, options, data.Mixup, "Mixup", seed)


def given_parameters(monkeypatch, ours, theirs, seed):
    """Let both draw lam and whether to use CutMix in one order, which ours defines."""
    lam, use_cutmix = type(ours).draw_lam(ours, 8, np.random.default_rng(seed))
    lam = lam.astype(np.float32)
    monkeypatch.setattr(type(ours), "draw_lam", lambda self, count, _: (lam[:count].astype(float), use_cutmix[:count]))
    monkeypatch.setattr(type(theirs), "_params_per_elem", lambda self, n: (lam[:n].copy(), use_cutmix[:n]))
    monkeypatch.setattr(type(theirs), "_params_per_batch", lambda self: (float(lam[0]), bool(use_cutmix[0])))


def compare_mixed(monkeypatch, options, kind, name, seed):
    rng = np.random.default_rng(seed)
    images, labels = rng.normal(size=(8, 3, 9, 12)).astype(np.float32), rng.integers(0, 5, 8)
    ours, theirs = kind(**options), getattr(timm("mixup"), name)(**options)
    given_parameters(monkeypatch, ours, theirs, seed)
    x, y = ours(flow.tensor(images), flow.tensor(labels))
    their_x, their_y = theirs(torch.tensor(images), torch.tensor(labels))
    assert_close(x, their_x, rtol=1e-5, atol=1e-6)
    assert_close(y, their_y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("name", MIXES)
def test_mixup_of_bytes(monkeypatch, same_numbers, name, mode):
    same_numbers(1)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (8, 3, 9, 12)).astype(np.uint8), rng.integers(0, 5, 8).tolist()
    options = {"num_classes": 5, "mode": mode, **MIXES[name]}
    ours, theirs = data.FastCollateMixup(**options), timm("mixup").FastCollateMixup(**options)
    given_parameters(monkeypatch, ours, theirs, 1)
    x, y = ours(list(zip(images.copy(), labels, strict=True)))
    their_x, their_y = theirs(list(zip(images.copy(), labels, strict=True)))
    np.testing.assert_array_equal(x.numpy(), their_x.numpy())
    assert_close(y, their_y, rtol=1e-5, atol=1e-6)


def erase_parts_of_timm(monkeypatch) -> None:
    """Parts are drawn in timm's order, one after the other: the same distribution, which transforms' tests check."""

    def random_part(img, areas, ratio, largest):
        draw, (_, height, width) = flow.default_generator.numpy(), img.shape
        for _ in range(10):
            area = draw.uniform(*areas) * height * width
            aspect = np.exp(-np.log(ratio[1]) + (np.log(ratio[1]) - np.log(ratio[0])) * draw.random())
            h, w = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if h <= largest[0] and w <= largest[1]:
                return draw.integers(height - h + 1), draw.integers(width - w + 1), h, w
        return None

    monkeypatch.setattr(random_erasing, "random_part", random_part)


@pytest.mark.parametrize(
    "options",
    [{"mode": "const"}, {"mode": "rand", "max_count": 3}, {"mode": "pixel", "num_splits": 2, "max_aspect": 1.5}],
)
def test_random_erasing(monkeypatch, same_numbers, options):
    erase_parts_of_timm(monkeypatch)
    images = np.random.default_rng(0).normal(size=(10, 3, 14, 18)).astype(np.float32)
    options = {"probability": 0.7, "min_area": 0.05, **options}
    ours, theirs = data.RandomErasing(**options), timm("random_erasing").RandomErasing(**options, device="cpu")
    for x in (images, images[0]):
        assert_close(ours(flow.tensor(x)), theirs(torch.tensor(x)), rtol=1e-6, atol=1e-7)


def test_collation():
    images = np.random.default_rng(0).integers(0, 256, (4, 2, 3, 5, 6)).astype(np.uint8)
    for batch in ([(x[0], i) for i, x in enumerate(images)], [(tuple(x), i) for i, x in enumerate(images)]):
        (x, y), (their_x, their_y) = data.fast_collate(batch), timm("loader").fast_collate(batch)
        np.testing.assert_array_equal(x.numpy(), their_x.numpy())
        np.testing.assert_array_equal(y.numpy(), their_y.numpy())


def test_constants():
    constants = timm("constants")
    names = [name for name in vars(data) if name.startswith("IMAGENET")]
    assert len(names) == 4 and all(getattr(data, name) == getattr(constants, name) for name in names)


def image(seed: int = 0, size: tuple[int, int] = (23, 17)):
    """An image of Pillow with edges, and colours that are not all frequent."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (5, 6, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def test_the_names_of_operations():
    assert set(LEVELS) == set(timm("auto_augment").LEVEL_TO_ARG) - {"TranslateX", "TranslateY"}


@pytest.mark.parametrize("magnitude", [0, 3, 9, 10, 14])
def test_operations(same_numbers, magnitude):
    theirs = timm("auto_augment")
    hparams = {"translate_pct": 0.3, "img_mean": (120, 110, 100), "magnitude_max": 15}
    for k, name in enumerate(LEVELS):
        for std in (0, 2.0, float("inf")):
            same_numbers(k)
            options = {**hparams, "magnitude_std": std}
            for _ in range(3):
                got = data.AugmentOp(name, 0.8, magnitude, options)(image())
                expected = theirs.AugmentOp(name, 0.8, magnitude, options)(image())
                np.testing.assert_array_equal(np.array(got), np.array(expected), err_msg=f"{name} {std}")


CONFIGS = [
    "original", "original-mstd0.5", "originalr-mstd1", "3a", "rand", "rand-m9-mstd0.5-inc1",
    "rand-m7-n4-p0.9-mstd101", "rand-m12-mmax15-inc1", "rand-n3-tweights-mstd1", "rand-n2-t3a", "rand-n3-t3aw-m6",
    "augmix-m5-w4", "augmix-m5-w2-d2-a0.5-mstd1", "augmix",
]  # fmt: skip


@pytest.mark.parametrize("hparams", [None, {"img_mean": (9, 8, 7), "translate_pct": 0.2, "interpolation": 2}])
@pytest.mark.parametrize("config", CONFIGS)
def test_policies(same_numbers, config, hparams):
    name = {"rand": "rand_augment_transform", "augmix": "augment_and_mix_transform"}.get(
        config.split("-")[0], "auto_augment_transform"
    )
    ours, theirs = (
        getattr(library, name)(config, None if hparams is None else dict(hparams))
        for library in (data, timm("auto_augment"))
    )
    changed = 0
    for seed in range(25):
        same_numbers(seed)
        got, expected = np.array(ours(image(seed))), np.array(theirs(image(seed)))
        np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")
        changed += not np.array_equal(got, np.array(image(seed)))
    assert changed > 12


EVALUATIONS = [
    {},
    {"input_size": (3, 20, 20), "crop_pct": 0.95, "interpolation": "bicubic"},
    {"input_size": (18, 24), "crop_mode": "squash", "mean": (0.5,) * 3, "std": (0.25,) * 3},
    {"input_size": 20, "use_prefetcher": True},
    {"input_size": 20, "normalize": False},
    {"input_size": 20, "is_training": True, "no_aug": True, "interpolation": "random"},
    {"input_size": (18, 24), "is_training": True, "no_aug": True},
]


@pytest.mark.parametrize("options", EVALUATIONS)
def test_transforms_of_evaluation(options):
    theirs = timm("transforms_factory").create_transform(**options)
    ours = data.create_transform(**{name: value for name, value in options.items() if name != "crop_mode"})
    for size in ((40, 30), (30, 50), (24, 24)):
        got, expected = ours(image(size=size)), theirs(image(size=size))
        assert_close(got, expected, rtol=1e-5, atol=1e-6)


TRAININGS = [
    {"color_jitter": None},
    {"color_jitter": None, "auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "bicubic"},
    {"color_jitter": 0.4, "auto_augment": "augmix-m5-w4", "mean": (0.5, 0.4, 0.3)},
    {"color_jitter": None, "auto_augment": "original", "re_prob": 0.9, "re_mode": "pixel", "re_count": 3},
    {"color_jitter": None, "use_prefetcher": True, "re_prob": 1.0, "auto_augment": "3a"},
    {"color_jitter": None, "vflip": 1.0, "hflip": 1.0, "separate": True},
    {"color_jitter": None, "input_size": (3, 16, 20), "interpolation": "random", "auto_augment": "rand-n4"},
]


@pytest.mark.parametrize("options", TRAININGS)
def test_transforms_of_training(monkeypatch, same_numbers, options):
    """With the same parts of images, flips and interpolations; the policies and erasing draw the same numbers."""
    from miniflow.vision.data.transforms_factory import RandomResizedCropAndInterpolation as OurCrop
    from miniflow.vision.transforms import InterpolationMode

    erase_parts_of_timm(monkeypatch)
    theirs = timm("transforms_factory")
    options = {"input_size": 16, "is_training": True, "hflip": 0.0, **options}
    our_transform, their_transform = (library.create_transform(**options) for library in (data, theirs))
    crop = lambda *_: (3, 2, 11, 17)  # noqa: E731
    monkeypatch.setattr(OurCrop, "get_params", staticmethod(crop))
    monkeypatch.setattr(theirs.RandomResizedCropAndInterpolation, "get_params", staticmethod(crop))
    parts = (
        zip(our_transform, their_transform, strict=True)
        if options.get("separate")
        else [(our_transform, their_transform)]
    )
    if options.get("interpolation") == "random":
        assert our_transform.transforms[0].modes == (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
        our_transform.transforms[0].modes = (InterpolationMode.BILINEAR,)
        their_transform.transforms[0].interpolation = importlib.import_module(
            "torchvision.transforms"
        ).InterpolationMode.BILINEAR
    parts = list(parts)
    for seed in range(6):
        x = their_x = image(seed, (30, 24))
        for ours, their in parts:
            x, their_x = through(ours, their, x, their_x, lambda: same_numbers(seed))  # noqa: B023
        assert_close(x, their_x, rtol=1e-5, atol=1e-6)


def through(ours, theirs, x, their_x, seed):
    """Both pipelines, whose transforms are seeded alike, one by one."""
    assert len(ours.transforms) == len(theirs.transforms)
    for our_transform, their_transform in zip(ours.transforms, theirs.transforms, strict=True):
        seed()
        x, their_x = our_transform(x), their_transform(their_x)
    return x, their_x
