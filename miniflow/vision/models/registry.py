"""Models by name, and the files of their trained weights."""

from __future__ import annotations

import difflib
import fnmatch
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from miniflow import nn
from miniflow.backends.runtime_defaults import user_level
from miniflow.errors import ArgumentError, CheckpointNotFoundError
from miniflow.serialization.states import load
from miniflow.utils.data.download import download as fetch
from miniflow.utils.data.mnist import cache_folder

HUB = "https://huggingface.co"
MODELS: dict[str, Callable[..., nn.Module]] = {}  # name -> what makes the network


class Variant:
    """A network by its name: `resnet18(num_classes=10)` makes one. A family of models is a list of these.

    Args:
        name: under which `create_model` finds it.
        network, *arguments, **options: the network is `network(*arguments, **options)`.
        hub: a repository of the Hugging Face Hub whose `model.safetensors` has weights under the network's own names;
            without one, the weights are those of `source`.
        source: the library that has the model, "timm/legacy_seresnet50" where its name there is another.
        trained: options of the network when trained weights are to be loaded.

    >>> resnet18 = MODELS["resnet18"]
    >>> resnet18
    resnet18: ResNet(BasicBlock, (2, 2, 2, 2))
    """

    def __init__(
        self, name: str, network: Callable[..., nn.Module], *arguments: Any, hub: str = "", source: str = "torchvision",
        trained: Mapping[str, Any] | None = None, **options: Any,
    ):  # fmt: skip
        self.__name__, self.network, self.arguments, self.options = name, network, arguments, options
        self.source, self.trained = source, trained or {}
        self.url = f"{HUB}/{hub}/resolve/main/model.safetensors" if hub else None
        self.__doc__ = f"{self!r}. Options and source: {network.__name__}."
        MODELS[name] = self

    def __call__(
        self,
        pretrained: bool = False,
        progress: bool = True,
        *,
        weights: Any = None,
        checkpoint: str | PathLike | None = None,
        download: bool = False,
        **options: Any,
    ) -> nn.Module:
        """The network, in training mode.

        Args:
            pretrained: load the weights in `path`; an error says where to get them if they are not there.
            progress: of PyTorch; a download always shows a bar.
            weights: torchvision's way to say pretrained: anything but None.
            checkpoint: load this file, whatever `pretrained` says.
            download: with `pretrained`, fetch the file to `path` first.
            **options: of the network, such as `num_classes`; 0 for features instead of logits, as in timm.

        Raises:
            CheckpointNotFoundError: for `pretrained` without the file.
            CheckpointError: if the file holds the weights of another network.
            DownloadError: if the file cannot be fetched.
        """
        pretrained = pretrained or weights is not None
        trained = self.trained if pretrained else {}
        model = self.network(*self.arguments, **{**self.options, **trained, **options})
        if checkpoint is None and pretrained:
            checkpoint = self._published(download)
        if checkpoint is not None:
            load_weights(model, checkpoint)
        if options.get("num_classes") == 0:
            leave_out_classes(model)
        return model

    @property
    def path(self) -> Path:
        """Where the trained weights are looked for: `models` in `$MINIFLOW_CACHE`, or else in `~/.cache/miniflow`."""
        return cache_folder() / "models" / f"{self.__name__}.safetensors"

    def _published(self, download: bool) -> Path:
        """The file of trained weights."""
        if not self.path.is_file() and not (download and self.url):
            library, _, name = self.source.partition("/")
            source = f"{self.url} (download=True fetches it)" if self.url else (
                f"the state dict of {library}'s {name or self.__name__}, written by safetensors.torch.save_file"
            )  # fmt: skip
            missing = f"{self.__name__}: there are no trained weights at {self.path}"
            raise CheckpointNotFoundError(f"{missing}; put {source} there, or pass checkpoint=FILE")
        return self.path if self.path.is_file() else fetch(self.url, self.path)

    def __repr__(self) -> str:
        arguments = [getattr(value, "__name__", repr(value)) for value in self.arguments]
        options = [f"{key}={getattr(value, '__name__', repr(value))}" for key, value in self.options.items()]
        return f"{self.__name__}: {self.network.__name__}({', '.join(arguments + options)})"


def leave_out_classes(model: nn.Module) -> None:
    """Let what would be layers to 0 classes return their inputs."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.weight.shape[0] == 0:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, nn.Identity())


def load_weights(model: nn.Module, checkpoint: str | PathLike) -> None:
    """Load a file of weights; of a network for other classes, all but the last layer, with a warning that names it.

    Raises:
        CheckpointError: if names or shapes are those of another network.
    """
    state, own = load(checkpoint), model.state_dict()
    others = [
        name for name, value in state.items()
        if name in own and value.shape != own[name].shape and value.shape[1:] == own[name].shape[1:]
    ]  # fmt: skip
    if len(others) > 2:  # more than a weight and a bias: that is another network, which load_state_dict refuses
        others = []
    if others:
        warnings.warn(f"{checkpoint} is for other classes: not loaded are {', '.join(others)}", stacklevel=user_level())
    model.load_state_dict({**state, **{name: own[name] for name in others}})


def create_model(
    name: str, pretrained: bool = False, checkpoint: str | PathLike | None = None, **options: Any
) -> nn.Module:
    """The network of this name, in training mode.

    Args:
        name: one of `list_models()`.
        pretrained: load trained weights from `~/.cache/miniflow/models`; an error says where to get the file, and
            `download=True` fetches it.
        checkpoint: load the weights in this file.
        **options: of the network, such as `num_classes`; 0 for features instead of logits.

    Raises:
        ArgumentError: for an unknown name.
        CheckpointError: without the file, or for the weights of another network.

    >>> create_model("resnet18", num_classes=10).fc
    Linear(in_features=512, out_features=10, bias=True)

    Source: `flowvision.models.ModelCreator.create_model`, `timm.create_model`.
    """
    if name not in MODELS:
        near = difflib.get_close_matches(str(name), MODELS, 3)
        meant = f"did you mean {' or '.join(near)}?" if near else "list_models() has all names"
        raise ArgumentError(f"Unknown model ({name}): {meant}")
    make = MODELS[name]
    if isinstance(make, Variant):
        return make(pretrained, checkpoint=checkpoint, **options)
    model = make(pretrained=pretrained, **options)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    return model


def get_model(name: str, weights: Any = None, **options: Any) -> nn.Module:
    """`create_model` as torchvision has it: `weights` other than None means trained ones.

    Source: `torchvision.models.get_model`.
    """
    return create_model(name, weights is not None, **options)


def list_models(pattern: str = "*") -> list[str]:
    """The names that `create_model` knows, sorted.

    Args:
        pattern: with `*` and `?`; without them, what names begin with.

    >>> list_models("resnet1*")
    ['resnet101', 'resnet152', 'resnet18']

    Source: `timm.list_models`, `torchvision.models.list_models`.
    """
    wanted = pattern if set(pattern) & set("*?[") else f"{pattern}*"
    return sorted(name for name in MODELS if fnmatch.fnmatchcase(name, wanted))


class ModelCreator:
    """The registry of models under OneFlow's names.

    Source: `flowvision.models.ModelCreator`.
    """

    create_model = staticmethod(create_model)
    model_list = staticmethod(list_models)

    @staticmethod
    def register_model(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        """Let `create_model` find a function `make(pretrained=False, **options)` of your own by its name."""
        MODELS[make.__name__] = make
        return make

    @staticmethod
    def model_table(pattern: str = "*", pretrained: bool = False) -> str:
        """Name, network and file of weights of each model, as text.

        Args:
            pattern: as for `list_models`.
            pretrained: only those whose weights are on this machine.
        """
        rows = [("model", "network", "weights")]
        for name in list_models(pattern):
            make = MODELS[name]
            there = isinstance(make, Variant) and make.path.is_file()
            if there or not pretrained:
                rows.append((name, getattr(make, "network", make).__name__, str(make.path) if there else "-"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
