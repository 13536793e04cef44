"""Data sets of images beside torchvision's, from the same files."""

import gzip
from xml.etree import ElementTree

import numpy as np
import pytest
from models import needed

from miniflow.vision import datasets

pytestmark = pytest.mark.cpu_only("no test here looks at the device")
RNG = np.random.default_rng(0)


def save_image(path, height, width, mode="RGB"):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    Image.fromarray(RNG.integers(0, 256, shape).astype(np.uint8)).convert(mode).save(path)


def compare(ours, theirs):
    """All images and targets."""
    assert len(ours) == len(theirs) > 0
    for (image, target), (their_image, their_target) in zip(ours, theirs, strict=True):
        assert (image.mode, image.size) == (their_image.mode, their_image.size)
        np.testing.assert_array_equal(np.array(image), np.array(their_image))
        np.testing.assert_equal(
            *[np.array(x) if hasattr(x, "mode") else x for x in (target, their_target)], strict=False
        )


def test_image_folder(tmp_path):
    library = needed("torchvision")
    for name, mode in (("b/1.jpg", "L"), ("b/sub/0.png", "RGBA"), ("a/3.webp", "RGB"), ("a/10.JPEG", "RGB")):
        save_image(tmp_path / name, 5, 7, mode)
    (tmp_path / "b" / "none.txt").write_text("")
    ours, theirs = (library.ImageFolder(tmp_path) for library in (datasets, library.datasets))
    compare(ours, theirs)
    assert (ours.samples, ours.classes, ours.class_to_idx) == (theirs.samples, theirs.classes, theirs.class_to_idx)
    assert datasets.IMG_EXTENSIONS == library.datasets.folder.IMG_EXTENSIONS


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_mnist(tmp_path, name):
    library = needed("torchvision").datasets
    ours, theirs = getattr(datasets, name), getattr(library, name)
    folder = tmp_path / name / "raw"
    folder.mkdir(parents=True)
    for split, count in (("train", 5), ("test", 3)):
        for (file, digest), shape in zip(ours.files[split], [(count, 28, 28), (count,)], strict=True):
            array = RNG.integers(0, 10, shape).astype(np.uint8)
            content = bytes([0, 0, 8, array.ndim]) + np.array(shape, ">u4").tobytes() + array.tobytes()
            (folder / file.removesuffix(".gz")).write_bytes(content)
            (folder / file).write_bytes(gzip.compress(content))
            assert name == "MNIST" or (file, digest) in theirs.resources
    for train in (True, False):
        compare(ours(tmp_path, train), theirs(str(tmp_path), train))
    assert ours.classes == theirs.classes and ours.mirror in theirs.mirrors


ANNOTATIONS = {
    "none": "<annotation><size><width>6</width></size><segmented>0</segmented></annotation>",
    "one": "<annotation><object><name> cat </name><bndbox><xmin>1</xmin></bndbox></object><empty/></annotation>",
    "two": "<annotation><object><name>a</name></object><source/><object><name>b</name><part>x</part><part>y</part>"
    "</object><owner>\n</owner></annotation>",
}


@pytest.mark.parametrize("name", ["VOCDetection", "VOCSegmentation"])
@pytest.mark.parametrize(("year", "image_set"), [("2012", "val"), ("2007", "test")])
def test_voc(tmp_path, name, year, image_set):
    library = needed("torchvision").datasets
    folder = tmp_path / "VOCdevkit" / f"VOC{year}"
    for file, annotation in ANNOTATIONS.items():
        save_image(folder / "JPEGImages" / f"{file}.jpg", 4, 6)
        save_image(folder / "SegmentationClass" / f"{file}.png", 4, 6, "P")
        (folder / "Annotations").mkdir(exist_ok=True)
        (folder / "Annotations" / f"{file}.xml").write_text(annotation)
    for part in ("Main", "Segmentation"):
        (folder / "ImageSets" / part).mkdir(parents=True)
        (folder / "ImageSets" / part / f"{image_set}.txt").write_text("two\none\nnone\n")
    options = {"year": year, "image_set": image_set, "transforms": lambda image, target: (image, target)}
    compare(*[getattr(source, name)(tmp_path, **options) for source in (datasets, library)])


def test_published_archives():
    library = needed("torchvision").datasets
    from miniflow.vision.datasets.voc import ARCHIVES, SERVER

    theirs = {key: (entry["url"], entry["md5"]) for key, entry in library.voc.DATASET_YEAR_DICT.items()}
    assert {year: (SERVER + archive, digest) for year, (archive, digest) in ARCHIVES.items()}.items() <= theirs.items()


@pytest.mark.parametrize("text", ["<a><b>1</b><b>2</b></a>", "<annotation/>", "<a>  </a>", "<a><c/>x</a>"])
def test_elements(text):
    library = needed("torchvision").datasets
    ours, theirs = (x.VOCDetection.parse_voc_xml(ElementTree.fromstring(text)) for x in (datasets, library))
    assert ours == theirs
