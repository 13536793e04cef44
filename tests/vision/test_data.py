"""What batches and images become at random."""

from importlib.util import find_spec

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from miniflow.vision import data

needs_pillow = pytest.mark.skipif(
    find_spec("PIL") is None, reason="Pillow is not installed: pip install miniflow-edu[vision]"
)
LABELS = flow.tensor([0, 1, 2, 3, 1, 0])


def batch(seed: int = 0, n: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3, 8, 10)).astype(np.float32)


def one_hot(smoothing: float = 0.0) -> np.ndarray:
    return np.eye(4)[LABELS.numpy()] * (1 - smoothing) + smoothing / 4


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_mixup_mixes_images_and_labels_by_the_same_share(mode):
    flow.manual_seed(1)
    x = batch()
    mixed, labels = data.Mixup(mode=mode, label_smoothing=0.2, num_classes=4)(flow.tensor(x), LABELS)
    own = x.reshape(6, -1).astype(np.float64)
    other = own[::-1]
    lam = ((mixed.numpy().reshape(6, -1) - other) * (own - other)).sum(1) / ((own - other) ** 2).sum(1)
    expected = lam[:, None] * own + (1 - lam[:, None]) * other
    np.testing.assert_allclose(mixed.numpy().reshape(6, -1), expected, atol=1e-5)
    np.testing.assert_allclose(
        labels.numpy(), lam[:, None] * one_hot(0.2) + (1 - lam[:, None]) * one_hot(0.2)[::-1], atol=1e-5
    )
    assert ((lam > 0) & (lam < 1)).all() and len({round(x, 4) for x in lam}) == {"batch": 1, "pair": 3, "elem": 6}[mode]
    assert mode == "elem" or np.allclose(lam, lam[::-1], atol=1e-4)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_cutmix_takes_a_box_and_as_much_of_the_label(mode):
    flow.manual_seed(3)
    x = batch()
    mixed, labels = data.CutMix(num_classes=4, mode=mode)(flow.tensor(x), LABELS)
    from_other = (mixed.numpy() == x[::-1]).all(1)  # (N, H, W)
    np.testing.assert_array_equal(mixed.numpy(), np.where(from_other[:, None], x[::-1], x))
    for mask in from_other:
        rows, columns = mask.any(1), mask.any(0)
        np.testing.assert_array_equal(mask, rows[:, None] & columns)
        assert all((np.diff(np.flatnonzero(line)) == 1).all() for line in (rows, columns))
    lam = 1 - from_other.mean((1, 2))[:, None]
    np.testing.assert_allclose(labels.numpy(), lam * one_hot() + (1 - lam) * one_hot()[::-1], atol=1e-6)
    assert len({mask.tobytes() for mask in from_other}) == {"batch": 1, "pair": 3, "elem": 6}[mode]
    assert mode != "pair" or (from_other == from_other[::-1]).all()


def test_shares_have_the_distributions_of_the_papers():
    flow.manual_seed(5)
    mixup = data.Mixup(mixup_alpha=0.5, cutmix_alpha=2.0, prob=0.8, switch_prob=0.3)
    lam, use_cutmix = mixup.draw_lam(20_000, flow.default_generator.numpy())
    assert abs((lam == 1).mean() - 0.2) < 0.02 and abs(use_cutmix.mean() - 0.3) < 0.02
    for chosen, alpha in ((use_cutmix, 2.0), (~use_cutmix, 0.5)):
        mixed = lam[chosen & (lam < 1)]
        assert abs(mixed.mean() - 0.5) < 0.02 and abs(mixed.var() - 1 / (4 * (2 * alpha + 1))) < 0.01
    mixup.mixup_enabled = False
    assert (mixup.draw_lam(9, flow.default_generator.numpy())[0] == 1).all()
    assert data.CutMix().draw_lam(9, flow.default_generator.numpy())[1].all()
    assert not data.Mixup().draw_lam(9, flow.default_generator.numpy())[1].any()


def test_boxes_of_given_sizes_are_inside():
    for _ in range(50):
        (top, bottom, left, right), lam = data.cutmix_bbox_and_lam((3, 20, 30), 0.9, ratio_minmax=(0.2, 0.8))
        assert 0 <= top < bottom <= 20 and 0 <= left < right <= 30
        assert 4 <= bottom - top < 16 and 6 <= right - left < 24
        assert lam == pytest.approx(1 - (bottom - top) * (right - left) / 600)
    assert data.cutmix_bbox_and_lam((3, 20, 30), 0.75, correct_lam=False)[1] == 0.75


def test_what_is_drawn_is_flows_and_repeats():
    both = data.Mixup(cutmix_alpha=1.0, mode="elem", num_classes=4)
    erasing = data.RandomErasing(1.0, mode="pixel")
    found = []
    for _ in range(2):
        flow.manual_seed(7)
        x, y = both(flow.tensor(batch()), LABELS)
        found.append((x.numpy(), y.numpy(), erasing(x).numpy()))
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(found[0][0], both(flow.tensor(batch()), LABELS)[0].numpy())


def test_mixup_errors():
    with pytest.raises(ShapeError, match="Mixup: got a batch of 5 images; expected an even number: use drop_last=True"):
        data.Mixup()(flow.zeros(5, 3, 4, 4), flow.zeros(5).long())
    with pytest.raises(ArgumentError, match="got mode='all'; expected 'batch', 'pair' or 'elem'"):
        data.Mixup(mode="all")
    with pytest.raises(ArgumentError, match="mixup_alpha=0 and cutmix_alpha=0.0; expected one of them above 0"):
        data.Mixup(mixup_alpha=0)
    with pytest.raises(ArgumentError, match="Mixup: got prob=2; expected a number from 0 to 1"):
        data.Mixup(prob=2)
    with pytest.raises(ArgumentError, match=r"Mixup: got cutmix_minmax \(0.8, 0.2\); expected two shares"):
        data.Mixup(cutmix_minmax=(0.8, 0.2))
    with pytest.raises(DTypeError, match=r"Mixup: got x \(2, 3, 4, 4\) and dtype=miniflow.uint8; expected floats"):
        data.Mixup()(flow.zeros(2, 3, 4, 4).byte(), flow.zeros(2).long())
    for target in (flow.zeros(1), flow.zeros(4, 2)):
        with pytest.raises(ShapeError, match=r"Mixup: got target .*; expected class indices \(4,\)"):
            data.Mixup()(flow.zeros(4, 3, 4, 4), target)


@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
def test_random_erasing(mode):
    flow.manual_seed(2)
    x = np.full((40, 3, 16, 20), 7.0, np.float32)
    given = flow.tensor(x)
    y = data.RandomErasing(0.5, 0.1, 0.3, 0.5, mode=mode, num_splits=4)(given).numpy()
    np.testing.assert_array_equal(given.numpy(), x)
    erased = (y != 7).all(1)
    np.testing.assert_array_equal(y, np.where(erased[:, None], y, 7))
    assert not erased[:10].any() and 5 < erased.any((1, 2)).sum() < 25
    for image, mask in zip(y, erased, strict=True):
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert mask.sum() == rows * columns
        if rows:
            assert 0.05 < mask.mean() < 0.4 and 0.4 < rows / columns < 2.5
            colours = len(np.unique(image[:, mask], axis=1).T)
            assert colours == (mask.sum() if mode == "pixel" else 1)
            assert (image[:, mask] == 0).all() == (mode == "const")


def test_erased_areas_are_divided_by_their_number():
    erasing = data.RandomErasing(1.0, 0.2, 0.2, min_aspect=1.0, min_count=4)
    flow.manual_seed(0)
    erased = [(erasing(flow.ones(1, 40, 40)).numpy() == 0).mean() for _ in range(20)]
    assert 0.1 < np.mean(erased) < 0.2025 and max(erased) > 0.15
    with pytest.raises(ArgumentError, match="got mode='noise'; expected 'const', 'rand' or 'pixel'"):
        data.RandomErasing(mode="noise")


def test_collation_of_bytes():
    images = np.random.default_rng(0).integers(0, 256, (4, 2, 3, 5, 6)).astype(np.uint8)  # (N, views, C, H, W)
    x, y = data.fast_collate([(image[0], i) for i, image in enumerate(images)])
    assert x.dtype is flow.uint8 and y.dtype is flow.int64 and y.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(x.numpy(), images[:, 0])
    x, y = data.fast_collate([((flow.tensor(image[0]), flow.tensor(image[1])), i) for i, image in enumerate(images)])
    np.testing.assert_array_equal(x.numpy(), np.concatenate([images[:, 0], images[:, 1]]))
    assert y.tolist() == [0, 1, 2, 3] * 2
    for pair in ([flow.rand(3, 2, 2)] * 2, [images[0, 0], images[0, 0, :, 1:]]):
        with pytest.raises(DTypeError, match="fast_collate: got images .*; expected uint8 ones of one shape"):
            data.fast_collate([(image, 0) for image in pair])


def test_loaders_mix_while_they_collate():
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 5, 6)).astype(np.uint8)
    collate = data.FastCollateMixup(num_classes=8, label_smoothing=0.0)
    loader = flow.utils.data.DataLoader([(x, i) for i, x in enumerate(images)], batch_size=4, collate_fn=collate)
    for k, (x, y) in enumerate(loader):
        own, y = images[4 * k : 4 * k + 4].astype(np.float64), y.numpy().astype(np.float64)
        lam = y[0, 4 * k]
        np.testing.assert_allclose(x.numpy(), np.rint(lam * own + (1 - lam) * own[::-1]), atol=1)
        np.testing.assert_allclose(y.sum(1), 1, rtol=1e-6)
        assert x.dtype is flow.uint8 and 0 < lam < 1


def image(seed: int = 0):
    from PIL import Image

    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 16, 3)).astype(np.uint8))


@needs_pillow
def test_single_operations_beside_formulas():
    pixels = np.array(image()).astype(int)

    def applied(name, magnitude):
        return np.array(data.AugmentOp(name, 1.0, magnitude)(image()))

    np.testing.assert_array_equal(applied("Invert", 3), 255 - pixels)
    np.testing.assert_array_equal(applied("PosterizeIncreasing", 5), pixels & 0b11000000)
    np.testing.assert_array_equal(applied("PosterizeOriginal", 5), pixels & 0b11111100)
    np.testing.assert_array_equal(applied("SolarizeIncreasing", 3), np.where(pixels < 180, pixels, 255 - pixels))
    np.testing.assert_array_equal(
        applied("SolarizeAdd", 10), np.where(pixels < 128, np.minimum(255, pixels + 110), pixels)
    )
    np.testing.assert_allclose(applied("Brightness", 0), pixels * 0.1, atol=1)
    shifts = {round(shift, 1) for shift in [applied("TranslateXRel", 10)[0, 0].mean() for _ in range(20)]}
    assert len(shifts) >= 2  # to the left and to the right


@needs_pillow
@pytest.mark.parametrize("config", ["original-mstd1", "rand-m9-n3-mstd0.5-inc1", "augmix-m5-w4"])
def test_policies_repeat(config):
    found = []
    for _ in range(2):
        flow.manual_seed(3)
        transform = data.create_transform(8, is_training=True, auto_augment=config, re_prob=0.5, re_mode="pixel")
        found.append(np.stack([transform(image(seed)).numpy() for seed in range(6)]))
    np.testing.assert_array_equal(*found)
    assert found[0].shape == (6, 3, 8, 8) and not np.array_equal(transform(image(0)).numpy(), found[0][0])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("rand-m9-x3", "auto_augment='rand-m9-x3'; expected sections m, n, p, mstd, mmax, inc, t, each with its value"),
        ("rand-m", "auto_augment='rand-m'; expected sections"),
        ("rand-n2.5", "auto_augment='rand-n2.5'; expected sections"),
        ("augmix-b1", "expected sections m, w, d, a, mstd"),
        ("originl", "config='originl'; expected one of original, originalr, 3a"),
    ],
)
def test_strings_that_are_none(config, message):
    with pytest.raises(ArgumentError, match=message):
        data.create_transform(8, is_training=True, auto_augment=config)


def test_other_arguments_that_do_not_fit():
    for is_training in (True, False):
        with pytest.raises(ArgumentTypeError, match=r"arguments=\['crop_mode', 'hflp'\]; expected those"):
            data.create_transform(8, is_training, hflp=1.0, crop_mode="squash")
    with pytest.raises(ArgumentError, match="interpolation='random'; expected one of nearest, nearest-exact, bilinear"):
        data.create_transform(8, interpolation="random")


@needs_pillow
@pytest.mark.slow
def test_workers_draw_other_numbers_that_repeat(tmp_path):
    for k in range(8):
        (tmp_path / f"class_{k % 2}").mkdir(exist_ok=True)
        image(0).save(tmp_path / f"class_{k % 2}" / f"{k}.png")  # the same image: what differs is drawn
    transform = data.create_transform(8, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.5)
    dataset = flow.vision.datasets.ImageFolder(tmp_path, transform)
    loader = flow.utils.data.DataLoader(dataset, batch_size=2, shuffle=True, num_workers=2)
    epochs = []
    for _ in range(2):
        flow.manual_seed(4)
        epochs.append([(x.numpy(), y.numpy()) for x, y in loader])
    for (x, y), (again, labels) in zip(*epochs, strict=True):
        np.testing.assert_array_equal(x, again)
        np.testing.assert_array_equal(y, labels)
    assert len({x.tobytes() for batch, _ in epochs[0] for x in batch}) == 8
    assert sorted(label for _, y in epochs[0] for label in y) == [0] * 4 + [1] * 4
