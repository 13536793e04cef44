"""Layers of `nn.image`."""

import io
import sys

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import ArgumentError, DataError, DTypeError, ShapeError

image = flow.nn.image
RANDOM = np.random.default_rng(0)
IMAGES = [RANDOM.uniform(0, 255, (h, w, 3)).astype(np.float32) for h, w in ((2, 3), (4, 1), (3, 3))]

# of np.arange(12).reshape(3, 4) ** 2, by (interpolation_type, width, height): what OpenCV 5.0 computes
RESIZED = {
    ("bilinear", 3, 2): [[4.5, 9.5, 17.8333], [54.5, 75.5, 99.8333]],
    ("bilinear", 5, 4): [
        [0.0, 0.7, 2.5, 5.5, 9.0], [10.0, 14.2, 20.0, 27.0, 34.0],
        [34.0, 42.4, 53.0, 64.8, 76.0], [64.0, 75.9, 90.5, 106.3, 121.0],
    ],
    ("nn", 3, 2): [[0.0, 1.0, 4.0], [16.0, 25.0, 36.0]],
    ("nearest_neighbor", 5, 4): [
        [0.0, 0.0, 1.0, 4.0, 9.0], [0.0, 0.0, 1.0, 4.0, 9.0],
        [16.0, 16.0, 25.0, 36.0, 49.0], [64.0, 64.0, 81.0, 100.0, 121.0],
    ],
    ("bicubic", 3, 2): [[2.2221, 6.3594, 14.6726], [55.6043, 77.5156, 103.6029]],
    ("bicubic", 5, 4): [
        [-1.1743, -1.1089, 0.1152, 3.2054, 6.3978], [4.6427, 7.9397, 13.4434, 20.813, 27.237],
        [34.2794, 42.6284, 54.8223, 68.8821, 80.3581], [66.3777, 77.9583, 94.4316, 112.771, 127.4786],
    ],
    ("area", 3, 2): [[6.25, 11.8333, 20.4167], [51.5833, 70.5, 92.4167]],
    ("area", 5, 4): [
        [0.0, 0.75, 2.5, 5.25, 9.0], [10.6667, 15.4167, 21.1667, 27.9167, 35.6667],
        [32.0, 40.75, 50.5, 61.25, 73.0], [64.0, 76.75, 90.5, 105.25, 121.0],
    ],
}  # fmt: skip
RESIZED["auto", 3, 2], RESIZED["auto", 5, 4] = RESIZED["area", 3, 2], RESIZED["bilinear", 5, 4]


def buffer(arrays=IMAGES):
    return flow.tensor_list_to_tensor_buffer(arrays)


def assert_images(x, want):
    assert x.shape == (len(want),) and x.dtype is flow.tensor_buffer
    for got, wanted in zip(x.numpy(), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert got.dtype == wanted.dtype


def test_flip():
    codes = flow.tensor([1, 2, 3], dtype=flow.int8)
    want = [IMAGES[0][:, ::-1], IMAGES[1][::-1], IMAGES[2][::-1, ::-1]]
    assert_images(image.flip()(buffer(), codes), want)
    assert_images(image.flip()(buffer(IMAGES[:1]), flow.tensor([0])), IMAGES[:1])
    with pytest.raises(ArgumentError, match=r"flip: got flip_code=\[1, 4, 0\]; expected 3 numbers from 0 to 3"):
        image.flip()(buffer(), flow.tensor([1, 4, 0]))

    with pytest.raises(DTypeError, match="flip: got flip_code of miniflow.float32; expected integers"):
        image.flip()(buffer(IMAGES[:1]), flow.tensor([1.0]))


def test_normalize():
    mean, std = (1.0, 2.0, 3.0), (2.0, 4.0, 8.0)
    layer = image.normalize(std, mean)
    assert_images(layer(buffer()), [((x - mean) / std).astype(np.float32) for x in IMAGES])
    assert repr(layer) == "normalize(std=(2.0, 4.0, 8.0), mean=(1.0, 2.0, 3.0))"
    with pytest.raises(DTypeError, match="normalize: got image 0 of uint8; expected floats"):
        layer(buffer([np.ones((1, 1, 3), np.uint8)]))
    with pytest.raises(ShapeError, match="expected 2 numbers of both, as image 0 has channels"):
        layer(buffer([np.ones((1, 1, 2))]))


def test_batch_align():
    layer = image.batch_align(shape=(4, 3, 3), dtype=flow.float32, alignment=4)
    want = np.zeros((3, 4, 4, 3), np.float32)
    for i, x in enumerate(IMAGES):
        want[i, : x.shape[0], : x.shape[1]] = x
    assert_close(layer(buffer()), want)
    assert image.batch_align((4, 3, 3), flow.uint8, 0)(buffer()).dtype is flow.uint8
    for kind in (np.float32, np.float16, np.int16):
        x = np.array([[[300.7], [-3.0], [254.7]]]).astype(kind)
        y = image.batch_align((1, 3, 1), flow.uint8, 0)(buffer([x]))
        assert y.dtype is flow.uint8 and y.flatten().tolist() == [255, 0, 254]
    with pytest.raises(ShapeError, match=r"got image 1 of shape \(4, 1, 3\); expected at most \(3, 3\) pixels"):
        image.batch_align((3, 3, 3), flow.float32, 0)(buffer())
    with pytest.raises(ArgumentError, match="alignment=3; expected three sizes, and a power of two or 0"):
        image.batch_align((3, 3, 3), flow.float32, 3)


@pytest.mark.parametrize("kind, width, height", RESIZED)
def test_resize(kind, width, height):
    x = (np.arange(12).reshape(3, 4, 1) ** 2).astype(np.float32)
    layer = image.Resize((width, height), channels=1, dtype=flow.float32, interpolation_type=kind)
    y, scale, sizes = layer(buffer([x, x * 2]))
    want = np.array(RESIZED[kind, width, height], np.float32)[None, :, :, None]
    assert_close(y, np.concatenate([want, want * 2]), atol=2e-4)
    assert_close(scale, np.array([[width / 4, height / 3]] * 2, np.float32))
    assert sizes is None
    y, _, _ = image.Resize((width, height), channels=1, interpolation_type=kind)(buffer([x]))
    assert y.dtype is flow.uint8 and abs(y.numpy() - want.clip(0, 255)).max() <= 0.501


@pytest.mark.parametrize(
    "options, want",
    [
        ({}, [(9, 6), (6, 24), (6, 6)]),
        ({"max_size": 8}, [(8, 5), (2, 8), (6, 6)]),
        ({"resize_side": "longer"}, [(6, 4), (2, 6), (6, 6)]),
        ({"resize_side": "longer", "min_size": 3}, [(6, 4), (3, 12), (6, 6)]),
    ],
)
def test_resize_keeps_the_ratio(options, want):
    y, scale, sizes = image.Resize(6, keep_aspect_ratio=True, **options)(buffer())
    assert sizes.tolist() == [list(size) for size in want] and sizes.dtype is flow.int32
    assert [one.shape for one in y.numpy()] == [(h, w, 3) for w, h in want] and y.numpy()[0].dtype == np.float32
    pairs = zip(want, IMAGES, strict=True)
    assert_close(scale, np.array([(w / x.shape[1], h / x.shape[0]) for (w, h), x in pairs], np.float32))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_keep_their_range(kind):
    limits = np.iinfo(kind)
    for value in (limits.min, min(limits.max, 1000)):
        x = np.full((3, 2, 1), value, kind)
        for method in ("bilinear", "nn", "area", "bicubic"):
            y, _, _ = image.Resize(4, keep_aspect_ratio=True, interpolation_type=method)(buffer([x]))
            assert_images(y, [np.full((6, 4, 1), value, kind)])
    x = np.array([[[2**60 + 1]]], np.int64)
    y, _, _ = image.Resize(1, keep_aspect_ratio=True, interpolation_type="nn")(buffer([x]))
    assert y.numpy()[0].item() == 2**60 + 1


def test_the_nearest_pixel_is_taken_as_it_is():
    x = np.array([[[np.inf], [1.0], [np.nan], [2.0]]], np.float32)
    y, _, _ = image.Resize((2, 1), channels=1, dtype=flow.float32, interpolation_type="nn")(buffer([x[:, ::-1], x]))
    np.testing.assert_array_equal(y.numpy()[..., 0], [[[2.0, 1.0]], [[np.inf, np.nan]]])


def test_resize_refuses():
    ratio = {"keep_aspect_ratio": True}
    sizes = [{"target_size": size} for size in (3, (3,), (3, 0), (-1, 3), (3.0, 3))]
    for wrong in (*sizes, {"target_size": (3, 3), **ratio}, {"target_size": 0, **ratio}, {}):
        with pytest.raises(ArgumentError, match=r"expected an int with keep_aspect_ratio, else \(width, height\)"):
            image.Resize(**wrong)
    with pytest.raises(DTypeError, match="Resize: got dtype=miniflow.int64; expected flow.uint8 or flow.float32"):
        image.Resize((3, 3), dtype=flow.int64)
    with pytest.raises(ShapeError, match=r"Resize: got image 0 of shape \(0, 2, 3\); expected at least one pixel"):
        image.Resize((3, 3))(buffer([np.ones((0, 2, 3), np.uint8)]))
    with pytest.raises(ArgumentError, match="interpolation_type='cubic'; expected bilinear, bicubic"):
        image.Resize((3, 3), interpolation_type="cubic")
    with pytest.raises(ShapeError, match=r"got image 0 of shape \(2, 3, 3\); expected 1 channels"):
        image.Resize((3, 3), channels=1)(buffer())
    with pytest.raises(ShapeError, match=r"got image 0 of shape \(2, 3\); expected \(H, W, C\)"):
        image.Resize((3, 3))(buffer([np.ones((2, 3))]))
    with pytest.raises(DTypeError, match="Resize: got a tensor of .*float32; expected a tensor of tensor_buffer"):
        image.Resize((3, 3))(flow.ones(1, 2, 3, 3))


def files(images):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    found = []
    for pixels in images:
        file = io.BytesIO()
        pillow.fromarray(pixels).save(file, format="PNG")
        found.append(np.frombuffer(file.getvalue(), np.uint8))
    return buffer(found)


def test_decode():
    pixels = [RANDOM.integers(0, 256, shape).astype(np.uint8) for shape in ((2, 3, 3), (4, 1, 3))]
    gray = RANDOM.integers(0, 256, (3, 2)).astype(np.uint8)
    assert_images(image.decode()(files(pixels)), [x[..., ::-1] for x in pixels])
    assert_images(image.decode(flow.float32, "RGB")(files(pixels)), [x.astype(np.float32) for x in pixels])
    assert_images(image.decode(color_space="GRAY")(files([gray])), [gray[..., None]])
    assert_images(image.decode()(files([gray])), [np.repeat(gray[..., None], 3, 2)])
    with pytest.raises(DataError, match="decode: array 0 is no image that Pillow can read"):
        image.decode()(buffer([np.zeros(10, np.uint8)]))
    with pytest.raises(DataError, match="decode: array 0 is no image"):
        image.decode()(buffer([files(pixels).numpy()[0][:40]]))
    with pytest.raises(DTypeError, match="decode: got array 0 of float32; expected bytes"):
        image.decode()(buffer(IMAGES))


def test_decode_needs_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="nn.image.decode needs Pillow, .* pip install pillow"):
        image.decode()(buffer([np.zeros(10, np.uint8)]))
