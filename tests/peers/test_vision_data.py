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
        uniform=lambda low, high: current["timm"].uniform(low, high),
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
    monkeypatch.setattr(
        timm("random_erasing"),
        "_get_pixels",
        lambda per_pixel, colour, shape, **_: torch.tensor(
            current["timm"].standard_normal(shape if per_pixel else (shape[0], 1, 1))
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
    lam, use_cutmix = type(ours).draw(ours, 8, np.random.default_rng(seed))
    lam = lam.astype(np.float32)
    monkeypatch.setattr(type(ours), "draw", lambda self, count, _: (lam[:count].astype(float), use_cutmix[:count]))
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


@pytest.mark.parametrize(
    "options",
    [{"mode": "const"}, {"mode": "rand", "max_count": 3}, {"mode": "pixel", "num_splits": 2, "max_aspect": 1.5}],
)
def test_random_erasing(same_numbers, options):
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
