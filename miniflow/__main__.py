"""`python -m miniflow`: train a network on the bundled handwritten digits, and plot the results; `warm` compiles ahead.

It needs no network and no GPU: without one, `--device cuda` runs the CUDA kernels on the CPU. Read it from `main` at
the bottom upwards, or from the top as a first training program.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numba.core.event as numba_event
import numpy as np
from tqdm import tqdm

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, CheckpointError, DeviceError
from miniflow.optim import Adam, Optimizer
from miniflow.optim.lr_scheduler import CosineAnnealingLR, LRScheduler
from miniflow.utils.data import DataLoader, TensorDataset
from miniflow.vision import models
from miniflow.warm import CompilingNotice, warm

MODELS = {"lenet": models.LeNet, "mlp": models.MLP}
INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


@dataclass
class History:
    """The results of a training run.

    Attributes:
        train: the loss of every step.
        test: the loss on the test digits after every epoch.
        predicted: (N,) the classes last predicted for the test digits.
        saved: what the file given by --save holds; empty if there is none yet.
    """

    train: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)
    predicted: np.ndarray | None = None
    saved: str = ""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; a wrong one ends the program with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m miniflow",
        description="Train a network on 4,000 handwritten digits, and test it on 1,000 others.",
        epilog="python -m miniflow warm: compile the kernels that training needs into the cache",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", choices=sorted(MODELS), default="lenet", help="the network")
    add("--epochs", type=int, default=5, metavar="N", help="passes over the training digits")
    add("--batch-size", type=int, default=64, metavar="N", help="digits in a step")
    add("--lr", type=float, default=1e-3, metavar="RATE", help="Adam's first learning rate; it falls to 0")
    add("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1 ...")
    add("--seed", type=int, default=0, metavar="N", help="equal seeds give equal runs")
    add("--graph", action="store_true", help="train through nn.Graph: record a step once and replay it")
    add("--save", type=Path, metavar="PATH", help="write the weights here after every epoch")
    options = parser.parse_args(arguments)
    options.picture = Path(f"miniflow_{options.model}.png").absolute()
    for path in filter(None, (options.picture, options.save)):
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            parser.error(f"cannot write {path}: it is a folder, or lies in one that cannot be written to")
    return options


def eager_step(model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> Callable:
    """One training step, op by op; `StepGraph` is the same step as a graph. Returns the loss and the logits (N, 10)."""

    def step(images: flow.Tensor, labels: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss, logits

    return step


class StepGraph(nn.Graph):
    """The same step, recorded in the first call and replayed in the others, update and schedule included."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=scheduler)

    def build(self, images: flow.Tensor, labels: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        """The loss and the logits (N, 10)."""
        logits = self.model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        return loss, logits


def train_epoch(model: nn.Module, step: Callable, loader: DataLoader, bar: tqdm) -> list:
    """One pass over the training digits; returns the loss of every step."""
    model.train()
    device = next(model.parameters()).device
    history, right, seen = [], 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss, logits = step(images, labels)

        history.append(loss.item())
        if not math.isfinite(history[-1]):
            raise FloatingPointError(f"the loss became {history[-1]} in step {len(history)}: try a smaller --lr")
        right += (logits.argmax(dim=1) == labels).sum().item()
        seen += len(labels)
        bar.set_postfix_str(f"loss {history[-1]:.3f}, accuracy {right / seen:.1%}", refresh=False)
        bar.update()
    return history


@flow.no_grad()
def evaluate(model: nn.Module, digits: TensorDataset, batch_size: int = 250) -> tuple[float, np.ndarray]:
    """The mean loss on the digits, and the class predicted for each of them."""
    model.eval()
    device = next(model.parameters()).device
    total, predicted = 0.0, []
    for images, labels in DataLoader(digits, batch_size=batch_size):
        logits, labels = model(images.to(device)), labels.to(device)
        total += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        predicted.append(logits.argmax(dim=1).cpu().numpy())
    return total / len(digits), np.concatenate(predicted)


def train(options: argparse.Namespace, history: History) -> None:
    """The whole run: `history` is filled as it goes, so that an interrupt loses nothing."""
    flow.manual_seed(options.seed)
    digits, held_out = flow.data.mnist("train"), flow.data.mnist("test")
    truth = held_out.tensors[1].numpy()
    device = flow.device(options.device)
    model = MODELS[options.model]().to(device)
    optimizer = Adam(model.parameters(), lr=options.lr)
    loader = DataLoader(digits, batch_size=options.batch_size, shuffle=True)
    scheduler = CosineAnnealingLR(optimizer, options.epochs * len(loader))
    step = (StepGraph if options.graph else eager_step)(model, optimizer, scheduler)
    introduce(options, device, model, len(digits))
    for epoch in range(1, options.epochs + 1):
        with tqdm(total=len(loader), desc=f"epoch {epoch}/{options.epochs}", unit="step", dynamic_ncols=True) as bar:
            with numba_event.install_listener("numba:compile", CompilingNotice(bar)):
                history.train += train_epoch(model, step, loader, bar)
            loss, history.predicted = evaluate(model, held_out)
            history.test.append(loss)
            accuracy = (history.predicted == truth).mean()
            bar.set_postfix_str(f"{bar.postfix}; test loss {loss:.3f}, accuracy {accuracy:.1%}")
        if options.save:
            flow.save(model.state_dict(), options.save)
            history.saved = f"{options.save} holds the weights after epoch {epoch}"
    print(f"test accuracy {100 * accuracy:.1f} % on {len(held_out):,} digits held out from training")
    draw(history, truth, f"{type(model).__name__} on handwritten digits", options.picture)
    print(f"picture: {options.picture}")
    if history.saved:
        print(f"weights: {options.save}")


def introduce(options: argparse.Namespace, device: flow.device, model: nn.Module, examples: int) -> None:
    """Print what the run is going to do."""
    emulated = ", emulated by the CPU" if device.type == "cuda" and flow.cuda.is_emulated() else ""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"miniflow {metadata.version('miniflow-edu')}: {type(model).__name__} with {parameters:,} parameters, "
        f"{examples:,} digits in batches of {options.batch_size}, Adam with lr {options.lr:g}, seed {options.seed}, "
        f"on {device}{emulated}{', as an nn.Graph' if options.graph else ''}"
    )


def draw(history: History, truth: np.ndarray, title: str, path: Path) -> None:
    """Write the loss curves and the confusion matrix to a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    flow.show.losses(history.train, history.test, axes=left)
    flow.show.confusion(history.predicted, truth, axes=right)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with these arguments; returns the exit code."""
    history = History()
    try:
        if [*(sys.argv[1:] if arguments is None else arguments)] == ["warm"]:
            warm()
        else:
            train(parse(arguments), history)
    except KeyboardInterrupt:
        print(f"\ninterrupted: {history.saved or 'nothing was saved'}", file=sys.stderr)
        return INTERRUPTED
    except (FloatingPointError, ArgumentError, CheckpointError, DeviceError) as error:
        print(f"python -m miniflow: error: {error}; {history.saved or 'nothing was saved'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
