"""`python -m miniflow.vision`: train a small ResNet on the bundled digits, with augmentation, and look at what it does.

`--model NAME --data FOLDER` fine-tunes a model on a folder of images; `--style CONTENT STYLE` paints an image in the
style of another. After Ctrl-C, `--resume` goes on with the next step. Read it from `main` at the bottom upwards.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba.core.event as numba_event
import numpy as np
from tqdm import tqdm

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, CheckpointError, DataError, DeviceError
from miniflow.optim import AdamW
from miniflow.optim.lr_scheduler import CosineAnnealingLR
from miniflow.utils.data import DataLoader, Dataset, Subset
from miniflow.vision import models, transforms
from miniflow.vision.datasets import ImageFolder
from miniflow.vision.layers import Conv2dNormActivation
from miniflow.vision.models.detection.detector import Detector
from miniflow.vision.models.resnet import BasicBlock, conv1x1
from miniflow.vision.models.segmentation import FCN, LRASPP
from miniflow.vision.pillow import pillow
from miniflow.vision.transforms import InterpolationMode
from miniflow.vision.utils import save_image
from miniflow.warm import CompilingNotice

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended
COLUMNS = 8  # of the picture


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; a wrong one ends the program with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m miniflow.vision",
        description="Train a small ResNet on handwritten digits, or fine-tune a model on images in folders.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="FOLDER", help="images CLASS/*.jpg in FOLDER, or in FOLDER/train and FOLDER/val")
    add("--model", default="resnet18", metavar="NAME", help="for --data; miniflow.vision.models.list_models() has them")
    add("--pretrained", action="store_true", help="begin with trained weights; an error says where to put them")
    add("--checkpoint", type=Path, metavar="FILE", help="begin with the weights in this file")
    add("--size", type=int, default=224, metavar="N", help="height and width of the images of --data and --style")
    add("--epochs", type=int, default=3, metavar="N", help="passes over the training images")
    add("--batch-size", type=int, default=64, metavar="N", help="images in a step")
    add("--lr", type=float, metavar="RATE", help="AdamW's first learning rate; it falls to 0 (5e-3; with --data 5e-4)")
    add("--workers", type=int, default=0, metavar="N", help="processes that load and augment images")
    add("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1 ...")
    add("--seed", type=int, default=0, metavar="N", help="equal seeds give equal runs")
    add("--graph", action="store_true", help="train through nn.Graph: record a step once and replay it")
    add("--amp", action="store_true", help="compute in bfloat16 where that is safe")
    add("--save", type=Path, default=Path("miniflow_vision.safetensors"), metavar="PATH", help="where the run is kept")
    add("--resume", action="store_true", help="go on with the run that --save holds; the other options as they were")
    add("--style", type=Path, nargs=2, metavar=("CONTENT", "STYLE"), help="files of images; --epochs in 100 steps")
    options = parser.parse_args(arguments)
    options.lr = options.lr or (5e-4 if options.data else 5e-3)
    for name in ("epochs", "batch_size", "size"):
        if getattr(options, name) < 1:
            parser.error(f"got --{name.replace('_', '-')} {getattr(options, name)}; expected at least 1")
    options.picture = options.save.with_suffix(".png")
    if not os.access(options.save.absolute().parent, os.W_OK):
        parser.error(f"cannot write {options.save}: its folder is not there, or cannot be written to")
    return options


class Transformed(Dataset):
    """The samples of a data set, images by a transform."""

    def __init__(self, dataset: Dataset, transform: Callable):
        self.dataset, self.transform = dataset, transform

    def __getitem__(self, index: int) -> tuple[flow.Tensor, Any]:
        image, label = self.dataset[index]
        return self.transform(image), label

    def __len__(self) -> int:
        return len(self.dataset)


def digits() -> SimpleNamespace:
    """4,000 handwritten digits, shifted, turned and scaled a little, and 1,000 others as they are; a small ResNet."""
    mean, std = (0.1307,), (0.3081,)
    normalize = transforms.Normalize(mean, std)
    affine = transforms.RandomAffine(
        degrees=10, translate=(0.1, 0.1), scale=(0.9, 1.1), shear=10, interpolation=InterpolationMode.BILINEAR
    )

    def block(inputs: int, outputs: int) -> BasicBlock:  # half as many rows and columns
        return BasicBlock(inputs, outputs, 2, nn.Sequential(conv1x1(inputs, outputs, 2), nn.BatchNorm2d(outputs)))

    model = nn.Sequential(
        Conv2dNormActivation(1, 16), block(16, 32), block(32, 64),  # (N, 64, 7, 7)
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    train, test = (flow.data.mnist(split, normalize=False) for split in ("train", "test"))
    train, test = Transformed(train, transforms.Compose([affine, normalize])), Transformed(test, normalize)
    return SimpleNamespace(model=model, train=train, test=test, classes=[*"0123456789"], mean=mean, std=std)


def folder(options: argparse.Namespace) -> SimpleNamespace:
    """Images in folders, cropped and mirrored at random; every tenth is held out if there are no folders for that."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
    end = [transforms.ToTensor(), transforms.Normalize(mean, std)]
    crop = transforms.RandomResizedCrop(options.size, scale=(0.5, 1))
    augment = transforms.Compose([crop, transforms.RandomHorizontalFlip(), *end])
    plain = transforms.Compose([transforms.Resize(options.size * 8 // 7), transforms.CenterCrop(options.size), *end])
    parts = [options.data / "train", options.data / "val"]
    if all(part.is_dir() for part in parts):
        train, test = (ImageFolder(part, transform) for part, transform in zip(parts, (augment, plain), strict=True))
        classes = train.classes
    else:
        train, test = ImageFolder(options.data, augment), ImageFolder(options.data, plain)
        classes, order = train.classes, np.random.default_rng(0).permutation(len(train)).tolist()
        train, test = Subset(train, order[len(order) // 10 :]), Subset(test, order[: len(order) // 10])
    model = models.create_model(options.model, options.pretrained, options.checkpoint, num_classes=len(classes))
    if isinstance(model, Detector | FCN | LRASPP):
        raise ArgumentError(f"got --model {options.model}; expected one that classifies images")
    return SimpleNamespace(model=model, train=train, test=test, classes=classes, mean=mean, std=std)


def loss_and_logits(model: nn.Module, images: flow.Tensor, labels: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
    """The cross-entropy and the logits (N, classes)."""
    logits = model(images)
    logits = getattr(logits, "logits", logits)  # GoogLeNet and Inception give those of auxiliary classifiers, too
    return nn.functional.cross_entropy(logits, labels), logits


class StepGraph(nn.Graph):
    """The step of training, recorded in the first call and replayed in the others."""

    def __init__(self, run: Run):
        super().__init__()
        self.model = run.model
        self.add_optimizer(run.optimizer, lr_sch=run.scheduler)
        self.config.enable_amp(run.options.amp, dtype=flow.bfloat16)

    def build(self, images: flow.Tensor, labels: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        """The loss and the logits (N, classes)."""
        loss, logits = loss_and_logits(self.model, images, labels)
        loss.backward()
        return loss, logits


@contextlib.contextmanager
def interrupts() -> Iterator[list]:
    """A list that is no longer empty after Ctrl-C, which does not interrupt; a second one does."""
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


class Run:
    """A training run that can be left after any step, and goes on as if it had not been.

    Attributes:
        progress: `epoch` and `step`, how many are done, of the steps in this epoch; `losses` of all steps; `begin` and
            `now`, the states of the random generator.
    """

    def __init__(self, options: argparse.Namespace):
        flow.manual_seed(options.seed)
        self.options, self.device = options, flow.device(options.device)
        self.task = folder(options) if options.data else digits()
        self.model = self.task.model.to(self.device)
        self.loader = DataLoader(
            self.task.train, options.batch_size, shuffle=True, num_workers=options.workers, drop_last=True
        )
        if not len(self.loader):
            raise DataError(f"got {len(self.task.train)} images, less than a batch: use a smaller --batch-size")
        self.optimizer = AdamW(self.model.parameters(), lr=options.lr, weight_decay=0.05)
        self.scheduler = CosineAnnealingLR(self.optimizer, options.epochs * len(self.loader))
        self.parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.progress: dict[str, Any] = {"epoch": 0, "step": 0, "losses": [], "begin": flow.get_rng_state()}
        if options.resume:
            state = flow.load(options.save)
            self.progress = state["progress"]
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
        self.step = StepGraph(self) if options.graph else self.eager_step

    def save(self) -> None:
        """Write the file of --save."""
        self.progress["now"] = flow.get_rng_state()
        states = {name: part.state_dict() for name, part in self.parts.items()}
        flow.save({**states, "progress": self.progress}, self.options.save)

    def eager_step(self, images: flow.Tensor, labels: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        """The step of training, op by op."""
        with flow.autocast(self.device.type, dtype=flow.bfloat16, enabled=self.options.amp):
            loss, logits = loss_and_logits(self.model, images, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss, logits

    def batches(self) -> Iterator:
        """Those of this epoch that are left. Those before are drawn again, to go on with the same random numbers."""
        flow.set_rng_state(self.progress["begin"])
        batches = iter(self.loader)
        for _ in range(self.progress["step"]):
            next(batches)
        if self.progress["step"]:
            flow.set_rng_state(self.progress["now"])
        return batches

    def train_epoch(self, bar: tqdm) -> None:
        """The rest of an epoch, or what comes before Ctrl-C, which is a KeyboardInterrupt after the file is written."""
        self.model.train()
        with interrupts() as asked:
            for images, labels in self.batches():
                loss, logits = self.step(images.to(self.device), labels.to(self.device))
                self.progress["losses"].append(loss.item())
                self.progress["step"] += 1
                accuracy = (logits.argmax(dim=1).cpu() == labels).float().mean().item()
                bar.set_postfix_str(f"loss {loss.item():.3f}, accuracy {accuracy:.1%}", refresh=False)
                bar.update()
                if not np.isfinite(loss.item()):
                    raise FloatingPointError("the loss is no longer finite: try a smaller --lr")
                if asked:
                    break
            else:
                self.progress.update(epoch=self.progress["epoch"] + 1, step=0, begin=flow.get_rng_state())
            self.save()
        if asked:
            raise KeyboardInterrupt

    @flow.no_grad()
    def evaluate(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes predicted for the images that are held out, and the true ones."""
        self.model.eval()
        found = []
        for images, labels in DataLoader(self.task.test, self.options.batch_size, num_workers=self.options.workers):
            logits = self.model(images.to(self.device))
            found.append((logits.argmax(dim=1).cpu().numpy(), labels.numpy()))
        predicted, truth = map(np.concatenate, zip(*found, strict=True))
        return predicted, truth

    def train(self) -> None:
        """All epochs that are left, and the picture."""
        result = None
        while self.progress["epoch"] < self.options.epochs:
            name = f"epoch {self.progress['epoch'] + 1}/{self.options.epochs}"
            with (
                tqdm(total=len(self.loader), initial=self.progress["step"], desc=name, unit="step") as bar,
                numba_event.install_listener("numba:compile", CompilingNotice(bar)),
            ):
                self.train_epoch(bar)
                result = self.evaluate()
                bar.set_postfix_str(f"{bar.postfix}; test accuracy {np.equal(*result).mean():.1%}")
        predicted, truth = result or self.evaluate()
        print(f"test accuracy {(predicted == truth).mean():.1%} on {len(truth):,} images held out from training")
        self.draw(predicted, truth)
        print(f"picture: {self.options.picture}\nweights: flow.load({str(self.options.save)!r})['model']")

    def draw(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        """Write the picture: augmented images, what is wrong, and the same with what spoke for the class."""
        from matplotlib.figure import Figure

        task, wrong = self.task, np.flatnonzero(predicted != truth)
        shown = [*wrong, *np.flatnonzero(predicted == truth)][:COLUMNS]  # fewer mistakes than columns: right ones, too
        augmented, labels = zip(*(task.train[i] for i in range(min(COLUMNS, len(task.train)))), strict=True)
        chosen = flow.stack([task.test[i][0] for i in shown])
        maps = activation_maps(self.model, chosen.to(self.device))
        names = [task.classes[int(label)] for label in labels]
        guesses = [f"{task.classes[predicted[i]]}, is {task.classes[truth[i]]}" for i in shown]
        figure = Figure(figsize=(1.6 * COLUMNS, 6), layout="constrained")
        rows = [
            ("augmented", flow.stack(augmented), names),
            (f"{len(wrong)} of {len(truth)} wrong", chosen, guesses),
            ("why", chosen, [""] * COLUMNS),
        ]
        for axes, (row, images, titles) in zip(figure.subplots(3, COLUMNS), rows, strict=True):
            axes[0].text(-0.15, 0.5, row, rotation=90, va="center", transform=axes[0].transAxes)
            for axis in axes:
                axis.axis("off")
            for i, (axis, image, title) in enumerate(zip(axes, images, titles, strict=False)):
                pixels = (image.permute(1, 2, 0).numpy() * np.array(task.std) + np.array(task.mean)).clip(0, 1)
                axis.imshow(pixels, cmap="gray")
                axis.set_title(title, fontsize=9)
                if row == "why":
                    extent = axis.get_images()[0].get_extent()
                    axis.imshow(maps[i], cmap="jet", alpha=0.5, interpolation="bilinear", extent=extent)
        figure.savefig(self.options.picture, dpi=110)


def activation_maps(model: nn.Module, images: flow.Tensor) -> np.ndarray:
    """Where a convolutional network saw its class: relu(sum of the last feature maps, each times its mean gradient).

    With a mean over all places and a linear layer at the end, as in ResNets, the gradients are the layer's weights, and
    this is the class activation map (Zhou et al., "Learning Deep Features for Discriminative Localization", 2016).

    Returns:
        (N, h, w), each scaled to a largest value of 1.

    Source: Selvaraju et al., "Grad-CAM", 2017.
    """
    maps: list[flow.Tensor] = []

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, flow.Tensor) and output.ndim == 4 and output.shape[-1] > 1:
            maps[:] = [output]

    hooks = [module.register_forward_hook(keep) for module in model.modules()]
    score = model.eval()(images).amax(dim=1).sum()
    for hook in hooks:
        hook.remove()
    (slope,) = flow.autograd.grad(score, maps)
    found = (maps[0] * slope.mean((2, 3), keepdim=True)).sum(1).relu().detach().cpu().numpy()
    return found / np.maximum(found.max(axis=(1, 2), keepdims=True), 1e-12)


def paint(options: argparse.Namespace) -> None:
    """Write the image of `--style`: its features are those of a VGG-19, with random weights unless there are others."""
    load = transforms.Compose([transforms.Resize(options.size), transforms.ToTensor()])
    content, style = (load(pillow().open(path).convert("RGB"))[None].to(options.device) for path in options.style)
    flow.manual_seed(options.seed)
    features = models.create_model("vgg19", options.pretrained, options.checkpoint).features.to(options.device).eval()
    with tqdm(desc="loss", unit="evaluation", dynamic_ncols=True) as bar:

        def show(loss: float) -> None:
            bar.set_postfix_str(f"{loss:.4g}", refresh=False)
            bar.update()

        painted = models.transfer_style(content, style, features, steps=100 * options.epochs, callback=show)
    save_image(painted, options.picture)
    print(f"picture: {options.picture}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with these arguments; returns the exit code."""
    options = parse(arguments)
    try:
        paint(options) if options.style else Run(options).train()
    except KeyboardInterrupt:
        kept = f"; --resume goes on with {options.save}" if options.save.is_file() and not options.style else ""
        print(f"\ninterrupted{kept}", file=sys.stderr)
        return INTERRUPTED
    except (FloatingPointError, ArgumentError, CheckpointError, DataError, DeviceError, ImportError, OSError) as error:
        print(f"python -m miniflow.vision: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
