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
from benchmarks.networks import graph_of, load, prepared

IMAGES, SIZE, BATCH, WORKERS = 512, (500, 375), 64, 2
STEPS, TURNS = 12, 5  # of an epoch of digits, and epochs of which the least times count
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


class Digits:
    """Random pictures of 28 x 28, and random labels."""

    def __init__(self, transform: Any):
        draw = np.random.default_rng(0)
        self.pixels = draw.integers(0, 256, (STEPS * BATCH, 28, 28), np.uint8)
        self.labels, self.transform = draw.integers(0, 10, len(self.pixels)), transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.pixels[index])), int(self.labels[index])


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


def time_submit(framework: str, threads: int, turns: int = TURNS) -> dict:
    """Wall time in ms per batch: of loading, of steps, of both by turns, and of both at once; and the losses."""
    flow = load(framework, threads)
    from miniflow.vision import transforms

    chain = [
        transforms.RandomAffine(15, (0.1, 0.1)),
        transforms.RandomResizedCrop(28, (0.7, 1.0)),
        transforms.ToTensor(),
    ]
    loader = flow.utils.data.DataLoader(Digits(transforms.Compose(chain)), BATCH)
    model, loss_function, x, y = prepared(flow, "lenet", BATCH)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    step = graph_of(flow, model, loss_function, flow.optim.SGD(model.parameters(), lr=0.01))
    step(x, y)
    best = dict.fromkeys(("loading", "steps", "by turns", "submitted"), float("inf"))
    losses: dict[str, list[float]] = {}
    for _ in range(turns):
        for name in best:
            flow.manual_seed(0)
            model.load_state_dict(start)
            waiting, found = None, []
            begin = time.perf_counter()
            for images, labels in [(x, y)] * len(loader) if name == "steps" else loader:
                if name == "submitted":
                    found += [] if waiting is None else [waiting.result()]
                    waiting = step.submit(images, labels)
                elif name != "loading":
                    found.append(step(images, labels))
            found += [] if waiting is None else [waiting.result()]
            best[name] = min(best[name], (time.perf_counter() - begin) / len(loader) * 1e3)
            losses[name] = [loss.item() for loss in found]
    return {**best, "losses": [losses["by turns"], losses["submitted"]]}


def report(images: int = IMAGES) -> str:
    """The tables."""
    with tempfile.TemporaryDirectory() as folder:
        write_images(folder, images)
        found = in_turns("loader.time_epoch", ["miniflow", "torch"], 1, folder=folder)
        overlap = in_turns("loader.time_submit", ["miniflow"], 1)["miniflow"]
    ours, theirs = found["miniflow"], found["torch"]
    require_equal("resized images", ours["means"], theirs["means"], 1e-5)
    rows = [[name, f"{ours[key]:.2f}", f"{theirs[key]:.2f}", f"{ours[key] / theirs[key]:.2f}"]
            for name, key in (("wall time", "wall"), ("CPU time of all processes", "cpu"))]  # fmt: skip
    title = f"Loading {images} JPEGs of {SIZE[0]} x {SIZE[1]} with augmentation, {WORKERS} workers: ms per image"
    by_turns, submitted = overlap.pop("losses")
    require_equal("losses of submitted steps", submitted, by_turns, 0)
    caption = f"LeNet on batches of {BATCH} digits that the main process augments: ms per step, wall time"
    times = table(caption, [*overlap, "ratio"], [
        [*(f"{ms:.1f}" for ms in overlap.values()), f"{overlap['submitted'] / overlap['by turns']:.2f}"]
    ])  # fmt: skip
    return "\n\n".join([table(title, ["", "miniflow", "torch", "ratio"], rows), times])
