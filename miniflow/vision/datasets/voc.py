"""Pascal VOC: photographs with boxes, or with the class of every pixel.

Source: Everingham et al. 2010, "The Pascal Visual Object Classes (VOC) Challenge".
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from miniflow.errors import DataError
from miniflow.nn.arguments import check_choice
from miniflow.vision.datasets.folder import default_loader
from miniflow.vision.datasets.vision import Folder, PairTransform, Transform, VisionDataset, fetch_archive
from miniflow.vision.pillow import pillow

SERVER = "https://thor.robots.ox.ac.uk/pascal/VOC/"
ARCHIVES = {  # year -> (archive, its MD5)
    "2012": ("voc2012/VOCtrainval_11-May-2012.tar", "6cd6e144f989b92b3379bac3b3de84fd"),
    "2007": ("voc2007/VOCtrainval_06-Nov-2007.tar", "c52e279531787c972589f7e41ab4ae64"),
    "2007-test": ("voc2007/VOCtest_06-Nov-2007.tar", "b6e924de25625d8de591ea690078ad9f"),
}


class _VOC(VisionDataset):
    splits_folder: str
    target_folder: str
    target_ending: str

    def __init__(
        self, root: Folder, year: str = "2012", image_set: str = "train", download: bool = False,
        transform: Transform = None, target_transform: Transform = None, transforms: PairTransform = None,
    ):  # fmt: skip
        super().__init__(root, transforms, transform, target_transform)
        check_choice(self, ["2007", "2012"], year=year)
        check_choice(self, ["train", "trainval", "val", *["test"] * (year == "2007")], image_set=image_set)
        if download:
            archive, digest = ARCHIVES["2007-test" if image_set == "test" else year]
            fetch_archive(SERVER + archive, self.root, digest)
        folder = self.root / "VOCdevkit" / f"VOC{year}"
        names = self.existing(folder / "ImageSets" / self.splits_folder / f"{image_set}.txt").read_text().split()
        self.images = [str(folder / "JPEGImages" / f"{name}.jpg") for name in names]
        self.targets = [str(folder / self.target_folder / f"{name}{self.target_ending}") for name in names]

    def __len__(self) -> int:
        return len(self.images)


class VOCSegmentation(_VOC):
    """Images, and masks as PIL images in mode P whose values are the classes: 0 is background, 255 the border.

    The paths are in `images` and `targets`.

    Args:
        root: the folder with the unpacked archive, `VOCdevkit/VOC2012/...`.
        year: "2007" or "2012".
        image_set: "train", "val" or "trainval", of 2007 also "test".
        download: fetch the archive unless it is there, check it, and unpack it.
        transform, target_transform, transforms: as for `VisionDataset`.

    Raises:
        ArgumentError: for another year or image set.
        DataError: if the files are not there.
        DownloadError: if they cannot be fetched, or are not the published ones.

    Source: `torchvision.datasets.VOCSegmentation`.
    """

    splits_folder, target_folder, target_ending = "Segmentation", "SegmentationClass", ".png"

    def load(self, index: int) -> tuple[Any, Any]:
        with pillow().open(self.targets[index]) as mask:
            mask.load()
        return default_loader(self.images[index]), mask


class VOCDetection(_VOC):
    """Images, and their annotations as nested dicts: `target["annotation"]["object"][0]["bndbox"]["xmin"]`, a string.

    Args and errors are those of `VOCSegmentation`.

    Source: `torchvision.datasets.VOCDetection`.
    """

    splits_folder, target_folder, target_ending = "Main", "Annotations", ".xml"

    def load(self, index: int) -> tuple[Any, dict[str, Any]]:
        path = self.targets[index]
        try:
            root = ElementTree.parse(path).getroot()
        except (OSError, ElementTree.ParseError) as error:
            raise DataError(f"VOCDetection: cannot read {path}: {error}; expected an annotation in XML") from error
        return default_loader(self.images[index]), self.parse_voc_xml(root)

    @staticmethod
    def parse_voc_xml(node: ElementTree.Element) -> dict[str, Any]:
        """{tag: text} of an element without others in it, else {tag: dict}; what occurs several times is a list.

        So are the objects of an annotation, however many there are.
        """
        if not len(node):
            return {node.tag: node.text.strip()} if node.text else {}
        found: dict[str, list] = {}
        for child in node:
            for tag, value in VOCDetection.parse_voc_xml(child).items():
                found.setdefault(tag, []).append(value)
        if node.tag == "annotation":
            found["object"] = [found.get("object", [])]
        return {node.tag: {tag: values[0] if len(values) == 1 else values for tag, values in found.items()}}
