"""An epoch of a DataLoader with two workers over JPEGs of 500 x 375: cropped, resized, flipped and normalized.

Both libraries read the files with Pillow, in the same data set. miniflow has its transforms and its loader, torch those
of torchvision and its own. Without random parameters the tensors have to be equal.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import in_turns, require_equal, table
from benchmarks.models import declare_operators
from benchmarks.networks import load

IMAGES, SIZE, BATCH, WORKERS = 512, (500, 375), 64, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Files:
    """Images of a folder, and the number of each."""

    def __init__(self, folder: str, transform: Any):
        self.paths, self.transform = sorted(Path(folder).glob("*.jpg")), transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB")), index


def write_images(folder: str, count: int) -> None:
    """Smooth colours with noise: files of about 80 KB."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for i in range(count):
        colors = Image.fromarray(draw.integers(0, 255, (24, 32, 3), np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
        pixels = np.asarray(colors) + draw.integers(-12, 12, (*SIZE[::-1], 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(Path(folder, f"{i:04}.jpg"), quality=90)


def time_epoch(framework: str, threads: int, folder: str) -> dict:
    """Wall time and CPU time of the second epoch, in ms per image, and means of a few images."""
    library = load(framework, threads)
    if framework == "torch":
        declare_operators(library)
        from torchvision import transforms
    else:
        from miniflow.vision import transforms
    last = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    plain = Files(folder, transforms.Compose([transforms.Resize((224, 224)), *last]))
    first = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    images = Files(folder, transforms.Compose([*first, *last]))
    loader = library.utils.data.DataLoader(images, BATCH, shuffle=True, num_workers=WORKERS)
    for _ in range(2):
        wall, cpu = time.perf_counter(), sum(os.times()[:4])
        count = sum(len(labels) for _, labels in loader)
        wall, cpu = time.perf_counter() - wall, sum(os.times()[:4]) - cpu  # with that of the workers, which have ended
    means = [float(plain[i][0].mean()) for i in range(4)]
    return {"wall": 1e3 * wall / count, "cpu": 1e3 * cpu / count, "means": means}


def report(images: int = IMAGES) -> str:
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        write_images(folder, images)
        found = in_turns("loader.time_epoch", ["miniflow", "torch"], 1, folder=folder)
    ours, theirs = found["miniflow"], found["torch"]
    require_equal("resized images", ours["means"], theirs["means"], 1e-5)
    rows = [[name, f"{ours[key]:.2f}", f"{theirs[key]:.2f}", f"{ours[key] / theirs[key]:.2f}"]
            for name, key in (("wall time", "wall"), ("CPU time of all processes", "cpu"))]  # fmt: skip
    title = f"Loading {images} JPEGs of {SIZE[0]} x {SIZE[1]} with augmentation, {WORKERS} workers: ms per image"
    return table(title, ["", "miniflow", "torch", "ratio"], rows)
