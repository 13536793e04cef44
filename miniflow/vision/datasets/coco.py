"""COCO: photographs with boxes and outlines, described by one JSON file.

Source: Lin et al. 2014, "Microsoft COCO: Common Objects in Context".
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from miniflow.errors import DataError
from miniflow.vision.datasets.folder import default_loader
from miniflow.vision.datasets.vision import Folder, PairTransform, Transform, VisionDataset


class CocoDetection(VisionDataset):
    """Images, and the list of their annotations: dicts with "bbox" (x, y, width, height), "category_id" and others.

    Args:
        root: the folder of the images.
        annFile: the JSON file, such as `annotations/instances_val2017.json`.
        transform, target_transform, transforms: as for `VisionDataset`.

    Attributes:
        ids: the numbers of the images, sorted.
        images: number -> the dict of the image, with "file_name", "height" and "width".
        annotations: number -> its annotations.
        categories: category number -> name.

    Raises:
        DataError: if the file is missing, or not of this format.

    Source: `torchvision.datasets.CocoDetection`, which reads the file by pycocotools.
    """

    def __init__(
        self, root: Folder, annFile: Folder, transform: Transform = None, target_transform: Transform = None,
        transforms: PairTransform = None,
    ):  # fmt: skip
        super().__init__(root, transforms, transform, target_transform)
        self.annotations: dict[int, list[dict[str, Any]]] = defaultdict(list)
        try:
            with open(annFile, encoding="utf-8") as file:
                content = json.load(file)
            self.images = {image["id"]: image for image in content["images"]}
            self.categories = {category["id"]: category["name"] for category in content.get("categories", ())}
            for annotation in content.get("annotations", ()):
                self.annotations[annotation["image_id"]].append(annotation)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            expected = "COCO's JSON, with images and annotations"
            raise DataError(f"CocoDetection: cannot read {annFile}: {error!r}; expected {expected}") from error
        self.ids = sorted(self.images)

    def load(self, index: int) -> tuple[Any, list[dict[str, Any]]]:
        number = self.ids[index]
        image = default_loader(self.existing(self.root / self.images[number]["file_name"]))
        return image, list(self.annotations.get(number, ()))

    def __len__(self) -> int:
        return len(self.ids)
