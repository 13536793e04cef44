"""Data sets of images, from small files in their published formats."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
from importlib.util import find_spec

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, DataError, DownloadError
from miniflow.vision import datasets

needs_pillow = pytest.mark.skipif(
    find_spec("PIL") is None, reason="Pillow is not installed: pip install miniflow-edu[vision]"
)
NOBODY = "http://127.0.0.1:9/"
RNG = np.random.default_rng(0)


def random_bytes(*shape: int, high: int = 256) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(np.uint8)


def save_image(path, pixels: np.ndarray, **options) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def server(tmp_path):
    """A folder, and the address where its files are served."""
    folder = tmp_path / "published"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def image_folder(tmp_path):
    """Three images of two classes, and files of other kinds; returns the folder and path -> pixels."""
    pixels = {name: random_bytes(4, 5, 3) for name in ("dog/b.PNG", "dog/deep/a.bmp", "cat/c.png")}
    for name, image in pixels.items():
        save_image(tmp_path / name, image)
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "list.txt").write_text("no class")
    return tmp_path, pixels


@needs_pillow
def test_image_folder(image_folder):
    folder, pixels = image_folder
    dataset = datasets.ImageFolder(folder)
    assert dataset.classes == ["cat", "dog"] and dataset.class_to_idx == {"cat": 0, "dog": 1}
    names = ["cat/c.png", "dog/b.PNG", "dog/deep/a.bmp"]
    assert dataset.samples == dataset.imgs == [(str(folder / name), int(name[0] == "d")) for name in names]
    assert dataset.targets == [0, 1, 1] and len(dataset) == 3
    for (image, target), name in zip(dataset, names, strict=True):
        assert image.mode == "RGB" and target == int(name[0] == "d")
        np.testing.assert_array_equal(np.array(image), pixels[name])


@needs_pillow
def test_transforms_of_images_and_targets(image_folder):
    dataset = datasets.ImageFolder(image_folder[0], transform=np.array, target_transform=lambda target: -target)
    assert dataset[2][0].shape == (4, 5, 3) and dataset[2][1] == -1
    loader = flow.utils.data.DataLoader(dataset, batch_size=3)
    images, targets = next(iter(loader))
    assert images.shape == (3, 4, 5, 3) and targets.tolist() == [0, -1, -1]
    together = datasets.VisionDataset("x", transforms=lambda image, target: (target, image))
    together.load = lambda index: ("image", index)
    assert together[3] == (3, "image")


def test_files_of_any_kind(tmp_path):
    for name in ("b/2.txt", "a/1.TXT", "a/0.txt", "a/skip.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    by_ending = datasets.DatasetFolder(tmp_path, lambda path: open(path).read(), (".txt",))
    assert list(by_ending) == [("a/0.txt", 0), ("a/1.TXT", 0), ("b/2.txt", 1)]
    by_function = datasets.DatasetFolder(
        tmp_path, str, is_valid_file=lambda path: path.endswith("2.txt"), allow_empty=True
    )
    assert list(by_function) == [(str(tmp_path / "b/2.txt"), 1)]
    with pytest.raises(DataError, match="no file of class 'b' in .*; expected one of .md"):
        datasets.DatasetFolder(tmp_path, str, (".md",))
    with pytest.raises(DataError, match="class 'a' in .*; expected one that is_valid_file accepts"):
        datasets.DatasetFolder(tmp_path, str, is_valid_file=lambda path: path.endswith("2.txt"))
    with pytest.raises(ArgumentError, match="expected extensions or is_valid_file"):
        datasets.DatasetFolder(tmp_path, str)


@needs_pillow
def test_damaged_images_are_named(tmp_path):
    save_image(tmp_path / "a" / "cut.png", random_bytes(9, 8, 3))
    whole = (tmp_path / "a" / "cut.png").read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        (tmp_path / "a" / "cut.png").write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read .*/a/cut\.png: .*; expected an image"):
            datasets.ImageFolder(tmp_path)[0]


def test_folders_without_classes(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="ImageFolder: found no folder in .*; expected one for each class"):
            datasets.ImageFolder(folder)


def test_transforms_exclude_each_other():
    with pytest.raises(ArgumentError, match="VisionDataset: got transforms and transform too; expected transforms"):
        datasets.VisionDataset("x", transforms=max, target_transform=max)


@needs_pillow
def test_fake_data():
    dataset = datasets.FakeData(5, (3, 4, 6), num_classes=3, transform=np.array)
    images, targets = zip(*[dataset[i] for i in range(5)], strict=True)
    assert np.stack(images).shape == (5, 4, 6, 3) and images[0].dtype == np.uint8 and set(targets) <= {0, 1, 2}
    assert len({image.tobytes() for image in images}) == 5 == len(dataset)
    np.testing.assert_array_equal(dataset[-1][0], images[4])
    shifted = datasets.FakeData(5, (3, 4, 6), num_classes=3, transform=np.array, random_offset=2)
    np.testing.assert_array_equal(shifted[1][0], images[3])
    assert datasets.FakeData(1, (1, 4, 6))[0][0].mode == "L"
    with pytest.raises(IndexError):
        dataset[5]
    pixels = np.concatenate([datasets.FakeData(50, (3, 20, 20), transform=np.array)[i][0].ravel() for i in range(50)])
    assert abs(pixels.mean() - 127.5) < 3 * 73.9 / 60_000**0.5 and pixels.min() == 0 and pixels.max() == 255
    drawn = [datasets.FakeData(300, (1, 1, 1), num_classes=3)[i][1] for i in range(300)]
    assert min(np.bincount(drawn)) > 70


def idx(array: np.ndarray) -> bytes:
    """An IDX file of bytes."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_idx(folder, kind, compress=gzip.compress, cut=".gz"):
    """Small files under the published names; returns the arrays of each split."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for split, size in (("train", 3), ("test", 2)):
        arrays[split] = random_bytes(size, 28, 28), random_bytes(size, high=10)
        for (name, _), array in zip(kind.files[split], arrays[split], strict=True):
            (folder / (name if compress is gzip.compress else name.removesuffix(".gz"))).write_bytes(
                compress(idx(array))
            )
    return arrays


@needs_pillow
@pytest.mark.parametrize("compress", [gzip.compress, bytes])
@pytest.mark.parametrize("kind", [datasets.MNIST, datasets.FashionMNIST])
def test_mnist(tmp_path, kind, compress):
    arrays = write_idx(tmp_path / kind.__name__ / "raw", kind, compress)
    for split, train in (("train", True), ("test", False)):
        dataset = kind(tmp_path, train=train)
        images, labels = arrays[split]
        assert dataset.data.dtype is flow.uint8 and dataset.targets.dtype is flow.int64
        np.testing.assert_array_equal(dataset.data.numpy(), images)
        np.testing.assert_array_equal(dataset.targets.numpy(), labels)
        image, target = dataset[1]
        assert image.mode == "L" and target == labels[1] and len(dataset) == len(labels)
        np.testing.assert_array_equal(np.array(image), images[1])
    assert len(kind.classes) == 10 and dataset.class_to_idx[kind.classes[7]] == 7


def test_mnist_is_downloaded_once(server, monkeypatch, tmp_path):
    folder, address = server
    images, labels = write_idx(folder, datasets.FashionMNIST)["test"]
    known = [(name, hashlib.md5((folder / name).read_bytes()).hexdigest()) for name, _ in datasets.MNIST.files["test"]]
    monkeypatch.setattr(datasets.FashionMNIST, "files", {"test": known})
    monkeypatch.setattr(datasets.FashionMNIST, "mirror", address)
    for _ in range(2):
        dataset = datasets.FashionMNIST(tmp_path, train=False, download=True)
        np.testing.assert_array_equal(dataset.data.numpy(), images)
        np.testing.assert_array_equal(dataset.targets.numpy(), labels)
        monkeypatch.setattr(datasets.FashionMNIST, "mirror", NOBODY)
    assert {path.name for path in (tmp_path / "FashionMNIST" / "raw").iterdir()} == {name for name, _ in known}


def test_mnist_with_other_contents_is_refused(server, monkeypatch, tmp_path):
    folder, address = server
    write_idx(folder, datasets.FashionMNIST)
    monkeypatch.setattr(datasets.FashionMNIST, "mirror", address)
    digest = hashlib.md5((folder / "train-images-idx3-ubyte.gz").read_bytes()).hexdigest()
    with pytest.raises(DownloadError, match=f"has MD5 {digest}; expected 8d4fb7e6c68d591d4c3dfef9ec88bf0d"):
        datasets.FashionMNIST(tmp_path, download=True)


def test_mnist_without_files_or_with_too_few(tmp_path):
    with pytest.raises(DataError, match=r"MNIST: found no .*/MNIST/raw/train-images-idx3-ubyte; .*download=True"):
        datasets.MNIST(tmp_path)
    write_idx(tmp_path / "MNIST" / "raw", datasets.MNIST)
    (tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(random_bytes(5)))
    with pytest.raises(DataError, match="MNIST: got 2 images and 5 labels; expected pairs"):
        datasets.MNIST(tmp_path, train=False)


def cifar_files(kind) -> tuple[dict[str, bytes], dict[bool, tuple[np.ndarray, np.ndarray]]]:
    """The files in the archive, and train -> (pixels (N, 32, 32, 3), labels)."""
    rows = {name: random_bytes(2, 3072 + kind.label_bytes, high=10) for name in kind.train_list + kind.test_list}
    names = [f"class_{i}" for i in range(10)]
    files = {name: array.tobytes() for name, array in rows.items()} | {kind.meta: ("\n".join(names) + "\n\n").encode()}
    expected = {}
    for train, chosen in ((True, kind.train_list), (False, kind.test_list)):
        array = np.concatenate([rows[name] for name in chosen])
        colours = [array[:, kind.label_bytes + 1024 * c :][:, :1024].reshape(-1, 32, 32) for c in range(3)]
        expected[train] = np.stack(colours, axis=-1), array[:, kind.label_bytes - 1]
    return {f"{kind.base_folder}/{name}": content for name, content in files.items()}, expected


def tar(files: dict[str, bytes], mode: str) -> bytes:
    """An archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write_files(folder, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@needs_pillow
@pytest.mark.parametrize("kind", [datasets.CIFAR10, datasets.CIFAR100])
def test_cifar(tmp_path, kind):
    files, expected = cifar_files(kind)
    write_files(tmp_path, files)
    for train, (pixels, labels) in expected.items():
        dataset = kind(tmp_path, train, target_transform=lambda target: (target,))
        np.testing.assert_array_equal(dataset.data, pixels)
        assert dataset.targets == labels.tolist() and len(dataset) == len(labels)
        image, target = dataset[1]
        assert image.mode == "RGB" and target == (labels[1],)
        np.testing.assert_array_equal(np.array(image), pixels[1])
    assert dataset.classes[3] == "class_3" and dataset.class_to_idx["class_9"] == 9
    assert repr(dataset) == f"{kind.__name__}(root={str(tmp_path)!r}, 2 samples)"


@pytest.mark.parametrize("kind", [datasets.CIFAR10, datasets.CIFAR100])
def test_cifar_is_downloaded_and_unpacked(server, monkeypatch, tmp_path, kind):
    folder, address = server
    files, expected = cifar_files(kind)
    content = tar(files, "w:gz")
    (folder / "cifar.tar.gz").write_bytes(content)
    monkeypatch.setattr(kind, "url", address + "cifar.tar.gz")
    with pytest.raises(DownloadError, match=f"has MD5 [0-9a-f]+; expected {kind.tgz_md5}"):
        kind(tmp_path / "data", download=True)
    monkeypatch.setattr(kind, "tgz_md5", hashlib.md5(content).hexdigest())
    for _ in range(2):
        np.testing.assert_array_equal(kind(tmp_path / "data", download=True).data, expected[True][0])
        monkeypatch.setattr(kind, "url", NOBODY + "cifar.tar.gz")


def test_cifar_that_is_missing_or_cut(tmp_path):
    with pytest.raises(DataError, match=r"CIFAR10: found no .*batches.meta.txt; expected the files .*download=True"):
        datasets.CIFAR10(tmp_path)
    files, _ = cifar_files(datasets.CIFAR10)
    write_files(tmp_path, files)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(bytes(5000))
    with pytest.raises(DataError, match="test_batch.bin has 5000 bytes; expected records of 3073: fetch it again"):
        datasets.CIFAR10(tmp_path, train=False)


def test_published_checksums():
    """Those of the data sets' pages, and of torchvision."""
    assert datasets.CIFAR10.tgz_md5 == "c32a1d4ab5d03f1284b67883e8d87530"
    assert datasets.CIFAR100.tgz_md5 == "03b5dce01913d631647c71ecec9e9cb8"
    assert datasets.FashionMNIST.files["test"] == [
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]


ANNOTATION = """<annotation>
  <filename>{name}.jpg</filename>
  <size><width>6</width><height>4</height><depth>3</depth></size>
  <source></source><empty/>
  {objects}
</annotation>"""
OBJECT = "<object><name>{name}</name><part><name>head</name></part><part><name>foot</name></part></object>"


def write_voc(root, year="2012", image_set="train"):
    """Two photographs, one object in the first and two in the second; returns name -> (pixels, mask)."""
    folder, made = root / "VOCdevkit" / f"VOC{year}", {}
    for i, name in enumerate(["2008_000002", "2008_000003"]):
        made[name] = random_bytes(4, 6, 3), random_bytes(4, 6, high=21)
        save_image(folder / "JPEGImages" / f"{name}.jpg", made[name][0])
        save_image(folder / "SegmentationClass" / f"{name}.png", made[name][1])
        objects = "".join(OBJECT.format(name=kind) for kind in ["cat", "dog"][: i + 1])
        write_files(folder, {f"Annotations/{name}.xml": ANNOTATION.format(name=name, objects=objects).encode()})
    for kind in ("Main", "Segmentation"):
        write_files(folder, {f"ImageSets/{kind}/{image_set}.txt": b"2008_000003\n2008_000002\n"})
    return made


@needs_pillow
def test_voc_detection(tmp_path):
    write_voc(tmp_path)
    dataset = datasets.VOCDetection(tmp_path, transforms=lambda image, target: (image.size, target["annotation"]))
    size, target = dataset[0]
    assert len(dataset) == 2 and size == (6, 4)
    parts = [{"name": "head"}, {"name": "foot"}]
    assert target == {
        "filename": "2008_000003.jpg",
        "size": {"width": "6", "height": "4", "depth": "3"},
        "object": [{"name": "cat", "part": parts}, {"name": "dog", "part": parts}],
    }
    assert dataset[1][1]["object"] == [{"name": "cat", "part": parts}]


@needs_pillow
def test_voc_segmentation(tmp_path):
    made = write_voc(tmp_path, "2007", "test")
    dataset = datasets.VOCSegmentation(tmp_path, "2007", "test", target_transform=np.array)
    image, mask = dataset[1]
    assert image.mode == "RGB" and image.size == (6, 4)
    np.testing.assert_array_equal(mask, made["2008_000002"][1])


@needs_pillow
def test_voc_is_downloaded_and_unpacked(server, monkeypatch, tmp_path):
    from miniflow.vision.datasets import voc

    folder, address = server
    write_voc(tmp_path / "source", image_set="val")
    paths = [path for path in (tmp_path / "source").rglob("*") if path.is_file()]
    content = tar({str(path.relative_to(tmp_path / "source")): path.read_bytes() for path in paths}, "w:")
    (folder / "voc.tar").write_bytes(content)
    monkeypatch.setattr(voc, "SERVER", address)
    monkeypatch.setitem(voc.ARCHIVES, "2012", ("voc.tar", hashlib.md5(content).hexdigest()))
    dataset = datasets.VOCDetection(tmp_path / "data", image_set="val", download=True)
    assert len(dataset) == 2 and dataset[0][1]["annotation"]["filename"] == "2008_000003.jpg"


def test_voc_errors(tmp_path):
    with pytest.raises(DataError, match=r"VOCDetection: found no .*VOC2012/ImageSets/Main/train.txt"):
        datasets.VOCDetection(tmp_path)
    with pytest.raises(ArgumentError, match="got image_set='test'; expected 'train', 'trainval' or 'val'"):
        datasets.VOCDetection(tmp_path, image_set="test")
    with pytest.raises(ArgumentError, match="got year='1999'"):
        datasets.VOCSegmentation(tmp_path, year="1999")
    write_files(
        tmp_path, {"VOCdevkit/VOC2012/ImageSets/Main/val.txt": b"one", "VOCdevkit/VOC2012/Annotations/one.xml": b"<a>"}
    )
    with pytest.raises(DataError, match=r"cannot read .*one.xml: no element found.*expected an annotation in XML"):
        datasets.VOCDetection(tmp_path, image_set="val")[0]


COCO = {
    "images": [{"id": 9, "file_name": "b.png", "width": 6}, {"id": 4, "file_name": "a.png", "width": 6}],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 2, "bbox": [1.0, 2.0, 3.5, 1.0]},
        {"id": 2, "image_id": 9, "category_id": 1, "bbox": [0.0, 0.0, 2.0, 2.0]},
    ],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
}


@needs_pillow
def test_coco(tmp_path):
    pixels = {name: random_bytes(4, 6, 3) for name in ("a.png", "b.png")}
    for name, image in pixels.items():
        save_image(tmp_path / "images" / name, image)
    (tmp_path / "instances.json").write_text(json.dumps(COCO))
    dataset = datasets.CocoDetection(tmp_path / "images", tmp_path / "instances.json", transform=np.array)
    assert dataset.ids == [4, 9] and len(dataset) == 2 and dataset.categories == {1: "cat", 2: "dog"}
    np.testing.assert_array_equal(dataset[0][0], pixels["a.png"])
    assert dataset[0][1] == [] and dataset[1][1] == COCO["annotations"] and len(dataset.annotations) == 1
    (tmp_path / "images" / "a.png").unlink()
    with pytest.raises(DataError, match="CocoDetection: found no .*a.png"):
        dataset[0]


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"images": [{"file_name": "a.png"}]}'])
def test_coco_that_is_none(tmp_path, content):
    path = tmp_path / "instances.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=f"CocoDetection: cannot read {re.escape(str(path))}: .*; expected COCO's JSON"):
        datasets.CocoDetection(tmp_path, path)


def test_the_names_of_oneflow_0_6():
    import miniflow.utils.vision.transforms as transforms
    from miniflow.utils.vision.datasets import FashionMNIST

    assert transforms is flow.vision.transforms is flow.utils.vision.transforms
    assert FashionMNIST is flow.utils.vision.datasets.FashionMNIST is datasets.FashionMNIST
