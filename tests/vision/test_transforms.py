"""Transforms beside NumPy, Pillow and `colorsys`: pixels, random parameters that repeat, and errors."""

import colorsys
import pickle

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from miniflow.utils.data import DataLoader, Dataset
from miniflow.vision import transforms
from miniflow.vision.transforms import functional as F

DRAW = np.random.default_rng(5)
PIXELS = DRAW.integers(0, 256, (3, 7, 10), np.uint8)  # (C, H, W)
FLOATS = PIXELS / np.float32(255)


@pytest.fixture
def pil():
    """The pixels as an image of Pillow."""
    module = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install miniflow-edu[vision]")
    return module.fromarray(np.ascontiguousarray(PIXELS.transpose(1, 2, 0)))


def stretched(x):
    """From black to white, each channel."""
    low, high = x.min((1, 2), keepdims=True), x.max((1, 2), keepdims=True)
    return (x - low) / (high - low)


GRAY = np.tensordot([0.2989, 0.587, 0.114], FLOATS, 1)[None]
TENSORS = [  # function, arguments, what NumPy makes of FLOATS
    ("hflip", (), FLOATS[..., ::-1]),
    ("vflip", (), FLOATS[:, ::-1]),
    ("crop", (1, 2, 4, 5), FLOATS[:, 1:5, 2:7]),
    ("crop", (-2, 6, 5, 6), np.pad(FLOATS[:, :3, 6:], [(0, 0), (2, 0), (0, 2)])),
    ("crop", (-3, 12, 2, 4), np.zeros((3, 2, 4))),
    ("crop", (5, -9, 4, 3), np.zeros((3, 4, 3))),
    ("center_crop", ([3, 12],), np.pad(FLOATS[:, 2:5], [(0, 0), (0, 0), (1, 1)])),
    ("pad", ([1, 2, 3, 4], 0.5), np.pad(FLOATS, [(0, 0), (2, 4), (1, 3)], constant_values=0.5)),
    ("pad", ([2, 3], 0, "reflect"), np.pad(FLOATS, [(0, 0), (3, 3), (2, 2)], "reflect")),
    ("pad", (2, 0, "symmetric"), np.pad(FLOATS, [(0, 0), (2, 2), (2, 2)], "symmetric")),
    ("pad", (np.int64(2), 0, "edge"), np.pad(FLOATS, [(0, 0), (2, 2), (2, 2)], "edge")),
    ("resize", ([np.int64(14), 20], transforms.InterpolationMode.NEAREST), FLOATS.repeat(2, 1).repeat(2, 2)),
    ("rotate", (180,), FLOATS[:, ::-1, ::-1]),
    ("affine", (0, [3, -2], 1.0, 0.0), np.pad(FLOATS[:, 2:, :-3], [(0, 0), (0, 2), (3, 0)])),
    ("invert", (), 1 - FLOATS),
    ("solarize", (0.5,), np.where(FLOATS >= 0.5, 1 - FLOATS, FLOATS)),
    ("autocontrast", (), stretched(FLOATS)),
    ("rgb_to_grayscale", (3,), GRAY.repeat(3, 0)),
    ("adjust_brightness", (1.5,), np.minimum(FLOATS * 1.5, 1)),
    ("adjust_contrast", (0.5,), FLOATS * 0.5 + GRAY.mean() * 0.5),
    ("adjust_saturation", (0.25,), FLOATS * 0.25 + GRAY * 0.75),
    ("adjust_gamma", (2.0, 1.5), np.minimum(1.5 * FLOATS**2, 1)),
    ("normalize", ([0.4], [0.5]), (FLOATS - 0.4) / 0.5),
    ("erase", (1, 2, 3, 4, 0.5), np.where(np.pad(np.ones((3, 4)), [(1, 3), (2, 4)]) == 1, 0.5, FLOATS)),
    ("convert_image_dtype", (flow.float64,), FLOATS.astype(float)),
]


@pytest.mark.parametrize(("name", "args", "expected"), TENSORS, ids=lambda x: x if isinstance(x, str) else "")
def test_tensors(name, args, expected):
    result = getattr(F, name)(flow.tensor(FLOATS), *args)
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=2e-6)
    assert result.dtype is (flow.float64 if name == "convert_image_dtype" else flow.float32)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_an_image_turned_by_right_angles_gets_no_border(turns):
    for pixels in (FLOATS[:, :6], FLOATS[:, :, :9]):
        result = F.rotate(flow.tensor(pixels), 90 * turns, expand=True)
        np.testing.assert_array_equal(result.numpy(), np.rot90(pixels, turns, (1, 2)))


def test_hues():
    for turn in (-0.3, 0.0, 0.45):
        colors = FLOATS.reshape(3, -1).T.tolist()
        turned = [colorsys.hsv_to_rgb((h + turn) % 1, s, v) for h, s, v in (colorsys.rgb_to_hsv(*x) for x in colors)]
        result = F.adjust_hue(flow.tensor(FLOATS), turn)
        np.testing.assert_allclose(result.numpy(), np.array(turned).T.reshape(FLOATS.shape), rtol=0, atol=1e-5)


def test_a_blurred_point_is_a_normal_distribution():
    point = np.zeros((1, 9, 9), np.float32)
    point[0, 4, 4] = 1
    across, down = (np.exp(-0.5 * (np.arange(-2, 3) / s) ** 2) for s in (1.0, 2.0))
    expected = np.pad(np.outer(down / down.sum(), across / across.sum()), 2)
    np.testing.assert_allclose(F.gaussian_blur(flow.tensor(point), 5, [1.0, 2.0])[0].numpy(), expected, atol=1e-6)


IMAGES = [
    ("hflip", ()), ("vflip", ()), ("invert", ()), ("posterize", (3,)), ("solarize", (90,)), ("crop", (-1, 2, 9, 5)),
    ("pad", ([1, 2, 3, 4], 0, "reflect")), ("pad", (2, 9)), ("center_crop", (4,)), ("equalize", ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), IMAGES)
def test_bytes_of_tensors_are_those_of_images(name, args, pil):
    """What Pillow, or NumPy, makes of an image, the operators make of its tensor."""
    image, bytes = getattr(F, name)(pil, *args), getattr(F, name)(flow.tensor(PIXELS), *args)
    np.testing.assert_array_equal(np.asarray(image).transpose(2, 0, 1), bytes.numpy(), strict=True)


def test_images_are_transformed_by_pillow(pil):
    from PIL import Image, ImageEnhance, ImageOps

    pairs = [
        (F.autocontrast(pil), ImageOps.autocontrast(pil)),
        (F.posterize(pil, 3), ImageOps.posterize(pil, 3)),
        (F.adjust_sharpness(pil, 1.7), ImageEnhance.Sharpness(pil).enhance(1.7)),
        (F.resize(pil, [5, 4], 3), pil.resize((4, 5), Image.Resampling.BICUBIC)),
        (F.rotate(pil, 30, fill=9), pil.rotate(30, fillcolor=(9, 9, 9))),
        (F.affine(pil, 0, [3, -2], 1.0, 0.0), pil.transform(pil.size, Image.Transform.AFFINE, (1, 0, -3, 0, 1, 2))),
        (F.rgb_to_grayscale(pil), pil.convert("L")),
        (F.to_pil_image(F.pil_to_tensor(pil)), pil),
    ]
    for ours, expected in pairs:
        assert ours.mode == expected.mode
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(expected), strict=True)
    np.testing.assert_array_equal(F.to_tensor(pil).numpy(), FLOATS, strict=True)


def test_the_perspective_of_moved_corners_is_a_moved_image():
    corners = [[0, 0], [9, 0], [9, 6], [0, 6]]
    found = F.perspective(flow.tensor(FLOATS), corners, [[x + 2, y + 1] for x, y in corners])
    np.testing.assert_allclose(found.numpy(), np.pad(FLOATS[:, :-1, :-2], [(0, 0), (1, 0), (2, 0)]), atol=1e-5)


RANDOM = [
    transforms.RandomCrop(5, padding=2), transforms.RandomResizedCrop(6), transforms.RandomHorizontalFlip(),
    transforms.ColorJitter(0.4, 0.4, 0.4, 0.2), transforms.RandomRotation(40), transforms.RandomPerspective(),
    transforms.RandomAffine(20, (0.2, 0.2), (0.8, 1.2), 10), transforms.GaussianBlur(3), transforms.RandAugment(),
    transforms.AutoAugment(), transforms.TrivialAugmentWide(), transforms.AugMix(), transforms.RandomErasing(),
    transforms.RandomOrder([transforms.RandomInvert(), transforms.RandomSolarize(100)]),
]  # fmt: skip


class Augmented(Dataset):
    """Noise, by one transform after the other."""

    def __len__(self):
        return 2 * len(RANDOM)

    def __getitem__(self, index):
        return F.resize(RANDOM[index % len(RANDOM)](flow.tensor(PIXELS)), [7, 10])


def test_random_numbers_repeat_with_the_seed_in_workers_too():
    def epoch(seed, num_workers):
        flow.manual_seed(seed)
        return np.concatenate([batch.numpy() for batch in DataLoader(Augmented(), num_workers=num_workers)])

    for num_workers in (0, 2):
        first, second = epoch(3, num_workers), epoch(3, num_workers)
        np.testing.assert_array_equal(first, second, strict=True)
        assert not np.array_equal(first[: len(RANDOM)], first[len(RANDOM) :])
        assert not np.array_equal(first, epoch(4, num_workers))


def test_probabilities():
    flow.manual_seed(0)
    for p, least, most in ((0.0, 0, 0), (0.2, 20, 60), (1.0, 200, 200)):
        for make in (transforms.RandomInvert(p), transforms.RandomApply([transforms.Lambda(F.invert)], p)):
            inverted = [make(flow.tensor(PIXELS[:1])).numpy()[0, 0, 0] == 255 - PIXELS[0, 0, 0] for _ in range(200)]
            assert least <= sum(inverted) <= most


def test_pipelines_are_modules_that_can_be_pickled():
    pipeline = transforms.Compose([transforms.RandomApply([transforms.Pad(2)], p=1.0), transforms.Normalize(0.5, 0.25)])
    expected = (np.pad(FLOATS, [(0, 0), (2, 2), (2, 2)]) - 0.5) / 0.25
    for made in (pipeline, pickle.loads(pickle.dumps(pipeline)), flow.nn.Sequential(*pipeline.transforms)):
        np.testing.assert_allclose(made(flow.tensor(FLOATS)).numpy(), expected, rtol=0, atol=1e-6)
    assert repr(pipeline.transforms[1]) == "Normalize(mean=0.5, std=0.25, inplace=False)"


def test_a_transform_can_be_derived_from():
    class FlipWithBoxes(transforms.RandomHorizontalFlip):
        def __init__(self, width, p=1.0):
            super().__init__(p)
            self.width = width

        def forward(self, img, boxes):  # boxes (N, 4): left, top, right, bottom
            return super().forward(img), [[self.width - r, t, self.width - l, b] for l, t, r, b in boxes]  # noqa: E741

    img, boxes = FlipWithBoxes(10)(flow.tensor(FLOATS), [[1, 2, 4, 5]])
    np.testing.assert_array_equal(img.numpy(), FLOATS[..., ::-1])
    assert boxes == [[6, 2, 9, 5]]


@pytest.mark.parametrize(
    ("make", "shape"),
    [(transforms.FiveCrop(4), (5, 3, 4, 4)), (transforms.TenCrop((4, 3), vertical_flip=True), (10, 3, 4, 3))],
)
def test_several_crops(make, shape):
    crops = np.stack([x.numpy() for x in make(flow.tensor(FLOATS))])
    assert crops.shape == shape
    np.testing.assert_array_equal(crops[3], FLOATS[:, -4:, -shape[-1] :])
    if len(crops) == 10:
        np.testing.assert_array_equal(crops[8], FLOATS[:, ::-1][:, -4:, -3:])


def test_random_parameters_stay_in_their_ranges():
    img = flow.zeros(3, 20, 30)
    for _ in range(200):
        top, left, h, w = transforms.RandomResizedCrop.get_params(img, (0.2, 0.5), (0.5, 2.0))
        assert 0 <= top <= 20 - h and 0 <= left <= 30 - w and 0.15 < h * w / 600 < 0.56 and 0.4 < w / h < 2.5
        order, *factors = transforms.ColorJitter.get_params((0.5, 0.7), None, (1.0, 1.2), None)
        assert sorted(order) == [0, 1, 2, 3] and 0.5 <= factors[0] <= 0.7 and factors[1] is factors[3] is None
        angle, shift, scale, shear = transforms.RandomAffine.get_params([-5, 9], (0.1, 0.2), None, [1, 2], [30, 20])
        assert -5 <= angle <= 9 and abs(shift[0]) <= 3 and abs(shift[1]) <= 4 and scale == 1
        assert 1 <= shear[0] <= 2 and shear[1] == 0
    assert transforms.RandomResizedCrop.get_params(img, (1.0, 1.0), (3.0, 4.0)) == (5, 0, 10, 30)


IMAGE = flow.zeros(3, 4, 5)
ERRORS = [
    (lambda: F.rotate(IMAGE, 3, center=1), ArgumentTypeError, r"rotate: got center=1; expected two numbers \(x, y\)"),
    (lambda: F.affine(IMAGE, 3, [0, 0], 1.0, [0, 0], center=[1]), ArgumentTypeError, r"affine: got center=\[1\]"),
    (lambda: F.affine(IMAGE, "a", [0, 0], 1.0, [0, 0]), ArgumentTypeError, "affine: got angle='a'; expected a number"),
    (lambda: F.affine(IMAGE, 3, 1, 1.0, [0, 0]), ArgumentError, "affine: got translate=1, .*expected two numbers"),
    (lambda: F.affine(IMAGE, 3, [0, 0], "a", "ab"), ArgumentError, "affine: got .*scale='a'.*, and a scale above 0"),
    (lambda: F.posterize(flow.zeros(1, 2, 2).byte(), "a"), ArgumentError, "posterize: got bits='a'; expected an int"),
    (lambda: F.solarize(IMAGE, "a"), ArgumentError, "solarize: got threshold='a'; expected at most 1"),
    (lambda: F.crop(IMAGE, "a", 1, 2, 2), ArgumentTypeError, "crop: got top='a', .*expected integers"),
    (lambda: transforms.RandomRotation(3, center=1), ArgumentTypeError, "RandomRotation: got center=1"),
    (lambda: transforms.RandomAffine(3, shear="ab"), ArgumentError, "RandomAffine: got shear='ab'"),
    (lambda: transforms.RandomChoice([]), ArgumentError, r"RandomChoice: got transforms=\[\]; expected at least one"),
    (lambda: F.hflip(np.zeros((3, 3))), ArgumentTypeError, "hflip: got .*expected an image of Pillow, or a tensor"),
    (lambda: F.vflip(flow.zeros(3)), ShapeError, r"vflip: got img \(3,\); expected \(..., C, H, W\)"),
    (lambda: F.invert(flow.zeros(2, 4, 5)), ShapeError, r"invert: .*expected \(..., 1 or 3, H, W\)"),
    (lambda: F.to_tensor("x"), ArgumentTypeError, "to_tensor: got pic='x'; expected an image of Pillow or an array"),
    (lambda: F.to_tensor(np.zeros(3)), ShapeError, "to_tensor"),
    (lambda: F.pil_to_tensor(np.zeros((3, 3))), ArgumentTypeError, "pil_to_tensor.*expected an image of Pillow"),
    (lambda: F.to_pil_image(flow.zeros(5, 2, 2)), ShapeError, "to_pil_image.*1 to 4 channels"),
    (lambda: F.to_pil_image(flow.zeros(3, 2, 2), "L"), ArgumentError, "mode='L'.*expected RGB or YCbCr or HSV"),
    (lambda: F.to_pil_image([[1]]), ArgumentTypeError, "to_pil_image.*expected a tensor or an array"),
    (lambda: F.convert_image_dtype(IMAGE, flow.int64), DTypeError, "convert_image_dtype.*fewer bits"),
    (lambda: F.convert_image_dtype(IMAGE, "uint8"), ArgumentTypeError, "got .*dtype='uint8'; expected .* flow.uint8"),
    (lambda: transforms.RandomVerticalFlip(None), ArgumentError, "RandomVerticalFlip: got p=None; expected a number"),
    (lambda: F.normalize(IMAGE.byte(), 0.0, 1.0), DTypeError, "normalize.*expected floats: use convert_image_dtype"),
    (
        lambda: F.normalize(IMAGE[:1], [0.1] * 3, 1),
        ShapeError,
        "normalize: .*one number, or 1 as the image has channels",
    ),
    (lambda: F.normalize(IMAGE, 0.0, [1.0, 0.0, 1.0]), ArgumentError, "normalize.*no 0 in std"),
    (lambda: F.resize(IMAGE, 0), ArgumentError, r"resize: got size=0; expected an integer above 0, or two"),
    (lambda: F.resize(IMAGE, [3, 4], max_size=9), ArgumentError, "resize.*max_size"),
    (lambda: F.resize(IMAGE, 3, "bilinear"), ArgumentTypeError, "resize: got interpolation='bilinear'.*Mode.BILINEAR"),
    (lambda: F.pad(IMAGE, [1, 2, 3]), ArgumentError, "pad.*1, 2 or 4 widths"),
    (lambda: F.pad(IMAGE, 1, [1, 2, 3]), ArgumentTypeError, "pad: got fill=.*one number for a tensor"),
    (lambda: F.five_crop(IMAGE, 6), ShapeError, r"five_crop: .*at most the image's \(4, 5\)"),
    (lambda: F.affine(IMAGE, 0, [0], 1.0, 0.0), ArgumentError, "affine.*two numbers of translate"),
    (lambda: F.rotate(IMAGE, 3, 3), ArgumentError, "rotate: .*nearest or bilinear for a tensor"),
    (lambda: F.rotate(IMAGE, 3, fill=[1, 2]), ArgumentError, "rotate: .*or 3 as the image has channels"),
    (lambda: F.perspective(IMAGE, [[0, 0]] * 4, [[0, 0]] * 4), ArgumentError, "perspective.*no three points in line"),
    (lambda: F.adjust_contrast(IMAGE, -1), ArgumentError, "adjust_contrast: got factor=-1; expected .*at least 0"),
    (lambda: F.adjust_hue(IMAGE, 0.6), ArgumentError, "adjust_hue: got hue_factor=0.6.*from -0.5 to 0.5"),
    (lambda: F.posterize(IMAGE, 3), DTypeError, "posterize.*expected flow.uint8"),
    (lambda: F.solarize(IMAGE, 128), ArgumentError, "solarize: got threshold=128; expected at most 1"),
    (lambda: F.gaussian_blur(IMAGE, 4), ArgumentError, "gaussian_blur.*expected odd sizes"),
    (lambda: F.rgb_to_grayscale(IMAGE, 2), ArgumentError, "num_output_channels=2; expected 1 or 3"),
    (lambda: transforms.Resize(), ArgumentTypeError, "Resize: missing a required argument: 'size'"),
    (lambda: transforms.RandomInvert(p=2), ArgumentError, "RandomInvert: got p=2; expected a number from 0 to 1"),
    (lambda: transforms.RandomApply([], p=-1), ArgumentError, "RandomApply: got p=-1"),
    (lambda: transforms.Compose(transforms.Pad(1)), ArgumentTypeError, "Compose.*expected a list of transforms"),
    (lambda: transforms.Lambda(3), ArgumentTypeError, "Lambda: got lambd=3; expected a function"),
    (lambda: transforms.RandomChoice([len], p=[0]), ArgumentError, "RandomChoice.*1 weights"),
    (lambda: transforms.RandomCrop(9)(IMAGE), ShapeError, r"RandomCrop: .*at most the image's \(4, 5\)"),
    (
        lambda: transforms.RandomResizedCrop(3, scale=(1, 0.5)),
        ArgumentError,
        r"RandomResizedCrop: got scale \(1, 0.5\)",
    ),
    (lambda: transforms.RandomErasing(ratio=(0, 1)), ArgumentError, r"RandomErasing: got ratio \(0, 1\); expected two"),
    (lambda: transforms.RandomErasing(value="x"), ArgumentError, "RandomErasing: got value='x'"),
    (lambda: transforms.RandomErasing(0)(PIXELS), ArgumentTypeError, "RandomErasing: .*a tensor: use ToTensor first"),
    (lambda: transforms.RandomErasing(1, value=[1, 2])(IMAGE), ArgumentError, "or 3 as the image has channels"),
    (lambda: transforms.ColorJitter(hue=0.7), ArgumentError, r"ColorJitter: got hue \(-0.7, 0.7\)"),
    (lambda: transforms.RandomRotation(-3), ArgumentError, "RandomRotation: got degrees=-3"),
    (lambda: transforms.RandomAffine(3, translate=(2, 0)), ArgumentError, "RandomAffine: got translate"),
    (lambda: transforms.GaussianBlur(3, 0.0), ArgumentError, "GaussianBlur: got sigma"),
    (lambda: transforms.AutoAugment("imagenet"), ArgumentError, "AutoAugment.*expected an AutoAugmentPolicy"),
    (lambda: transforms.AugMix(severity=11), ArgumentError, "AugMix: got severity=11; expected 1 to 10"),
]


@pytest.mark.parametrize(("act", "error", "message"), ERRORS, ids=range(len(ERRORS)))
def test_errors(act, error, message):
    with pytest.raises(error, match=message):
        act()


@pytest.mark.parametrize(
    ("name", "args"),
    [("hflip", ()), ("pad", ([1, 2], 0, "reflect")), ("equalize", ()), ("resize", ([4, 5],)), ("rotate", (30, 0, True)),
     ("gaussian_blur", (3,)), ("erase", (1, 2, 3, 4, flow.tensor(7)))],
)  # fmt: skip
def test_tensors_on_cuda(name, args):
    result = getattr(F, name)(flow.tensor(PIXELS, device="cuda"), *args)
    assert result.device.type == "cuda"
    np.testing.assert_array_equal(
        result.cpu().numpy(), getattr(F, name)(flow.tensor(PIXELS), *args).numpy(), strict=True
    )
