"""Examples of every layer, optimizer and schedule, for the test that their graphs compute what eager mode computes.

`test_equality.py` finds the classes by itself, in `nn`, `optim` and `lr_scheduler`, and fails for one
that has no example here: so whatever is added later joins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.vision import models


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal numbers in float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def classes(*shape: int, count: int = 3) -> np.ndarray:
    """Integers below `count`."""
    return np.random.default_rng(1).integers(0, count, shape)


IMAGES, ROWS = normal(4, 3, 8, 8), normal(4, 6)
SIGNALS = {"1d": normal(4, 3, 9), "2d": IMAGES, "3d": normal(2, 3, 4, 6, 5)}
LABELS = np.array(
    [[0, 3, -1, 1, 1, 1], [5, -1, 0, 0, 0, 0], [1, 2, 4, 0, 3, 5], [-1, 2, 2, 2, 2, 2]]
)  # up to the first -1
PROBABILITIES = np.random.default_rng(2).uniform(0.1, 0.9, (4, 6)).astype(np.float32)


class WithLoss(nn.Module):
    """A layer before a loss, so that the loss has gradients to give."""

    def __init__(self, loss: nn.Module, between: nn.Module | None = None):
        super().__init__()
        self.layer, self.between, self.loss = nn.Linear(6, 6), between or nn.Identity(), loss

    def forward(self, x: Any, target: Any) -> Any:
        return self.loss(self.between(self.layer(x)), target)


class Lists(nn.Module):
    """Parameters and modules in containers, some of them shared."""

    def __init__(self, kind: str):
        super().__init__()
        if kind == "ModuleList":
            self.parts = nn.ModuleList([nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)])
            self.parts.append(self.parts[0])
        elif kind == "ModuleDict":
            self.parts = nn.ModuleDict({"first": nn.Linear(6, 6), "act": nn.Tanh()})
        elif kind == "ParameterList":
            self.parts = nn.ParameterList([nn.Parameter(flow.tensor(normal(6))), nn.Parameter(flow.tensor(ROWS[0]))])
        else:
            self.parts = nn.ParameterDict({"weight": nn.Parameter(flow.tensor(normal(6, 6)))})
        self.kind = kind

    def forward(self, x: Any) -> Any:
        if self.kind == "ParameterList":
            return x * self.parts[0] + self.parts[1]
        if self.kind == "ParameterDict":
            return x @ self.parts["weight"]
        for part in self.parts.values() if self.kind == "ModuleDict" else self.parts:
            x = part(x)
        return x


class First(nn.Module):
    """The first result of a layer that has several."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


class WithItself(nn.Module):
    """Self-attention under a causal mask."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.attention(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0]


class Quantized(nn.Module):
    """A layer whose results are quantized, by what an observer sees."""

    def __init__(self, layer: nn.Module, observer: nn.Module, step: list[int] | None = None):
        super().__init__()
        self.linear, self.layer, self.observer, self.step = nn.Linear(6, 6), layer, observer, step

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        step = () if self.step is None else (flow.tensor(self.step, device=x.device),)
        return self.linear(self.layer(y, *self.observer(y, *step)))


AFFINE = ("google", 3, "affine")


def after_linear(layer: nn.Module) -> nn.Module:
    """A layer without parameters behind one that has some."""
    return nn.Sequential(nn.Linear(6, 6), layer)


def after_conv(layer: nn.Module) -> nn.Module:
    """A layer of images behind a convolution."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), layer)


class Pair(nn.Module):
    """A loss of a layer's result, a second one, and a target of 1 and -1."""

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.layer, self.loss = nn.Linear(6, 6), loss

    def forward(self, x: Any, y: Any, target: Any) -> Any:
        return self.loss(self.layer(x), y, target)


class Frames(nn.Module):
    """A layer before `CTCLoss`."""

    def __init__(self):
        super().__init__()
        self.layer, self.loss = nn.Linear(6, 4), nn.CTCLoss()

    def forward(self, x: Any, targets: Any) -> Any:
        return self.loss(self.layer(x).log_softmax(-1), targets, (5, 4), (2, 1))


SIGNS = np.array([1.0, -1, -1, 1], np.float32)
VOLUMES = normal(2, 3, 4, 4, 3)
POOLS = {
    "AdaptiveAvgPool": (3,), "AdaptiveMaxPool": (2,), "AvgPool": (2,), "MaxPool": (3, 2, 1), "LPPool": (1, 2)
}  # fmt: skip


def before_pool(dims: str, pool: nn.Module) -> nn.Module:
    """A pool behind a convolution of sequences, images or volumes."""
    return nn.Sequential(getattr(nn, f"Conv{dims}")(3, 4, 3, padding=1), pool)


class Unpooled(nn.Module):
    """Maxima, put back to where they were."""

    def __init__(self, dims: str):
        super().__init__()
        self.pool = before_pool(dims, getattr(nn, f"MaxPool{dims}")(2, return_indices=True))
        self.unpool = getattr(nn, f"MaxUnpool{dims}")(2)

    def forward(self, x: Any) -> Any:
        return self.unpool(*self.pool(x), output_size=x.shape[2:])


def names_of(base: type) -> list[str]:
    """The layers that derive from a base."""
    return [name for name in nn.__all__ if isinstance(layer := getattr(nn, name), type) and issubclass(layer, base)]


# class name -> a list of (make the module, the inputs)
MODULES: dict[str, list] = {
    **{
        name: [(lambda name=name: after_linear(getattr(nn, name)()), [ROWS])]
        for name in ("Identity", "GLU", "PReLU", *names_of(nn.modules.activation.Activation))
    },
    **{
        name: [(lambda name=name: after_linear(getattr(nn, name)(-1)), [ROWS])]
        for name in ("Softmax", "LogSoftmax", "Softmin")
    },
    "Softmax2d": [(lambda: after_conv(nn.Softmax2d()), [IMAGES])],
    "GELU": [
        (lambda: after_linear(nn.GELU()), [ROWS]),
        (lambda: after_linear(nn.GELU(approximate="tanh")), [ROWS]),
    ],
    **{
        name: [(lambda name=name: Lists(name), [ROWS])]
        for name in ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
    },
    "Sequential": [(lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), [ROWS])],
    "FusedMLP": [(lambda: nn.FusedMLP(6, [5, 4], 3, [0.2, 0.4], 0.1, True), [ROWS])],
    "Linear": [(lambda: nn.Linear(6, 3), [ROWS]), (lambda: nn.Linear(6, 3, bias=False), [normal(2, 3, 6)])],
    "Conv2d": [
        (lambda: nn.Conv2d(3, 5, 3), [IMAGES]),
        (lambda: nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3, bias=False), [IMAGES]),
        (lambda: nn.Conv2d(3, 4, 1), [IMAGES]),
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, dilation=1)), [IMAGES]),
    ],
    **{f"Conv{d}": [(lambda d=d: getattr(nn, f"Conv{d}")(3, 4, 3, padding=1), [SIGNALS[d]])] for d in ("1d", "3d")},
    **{
        f"ConvTranspose{d}": [(lambda d=d: getattr(nn, f"ConvTranspose{d}")(3, 4, 3, 2, 1, 1), [x])]
        for d, x in SIGNALS.items()
    },
    "Upsample": [(lambda: after_conv(nn.Upsample(scale_factor=2, mode="bilinear")), [IMAGES])],
    "UpsamplingNearest2d": [(lambda: after_conv(nn.UpsamplingNearest2d(size=5)), [IMAGES])],
    "UpsamplingBilinear2d": [(lambda: after_conv(nn.UpsamplingBilinear2d(scale_factor=2)), [IMAGES])],
    "Unfold": [(lambda: after_conv(nn.Unfold(3, padding=1, stride=2)), [IMAGES])],
    "Fold": [(lambda: after_conv(nn.Sequential(nn.Unfold(3, padding=1), nn.Fold(8, 3, padding=1))), [IMAGES])],
    "PixelShuffle": [(lambda: after_conv(nn.PixelShuffle(2)), [IMAGES])],
    "PixelUnshuffle": [(lambda: after_conv(nn.PixelUnshuffle(2)), [IMAGES])],
    "ChannelShuffle": [(lambda: after_conv(nn.ChannelShuffle(2)), [IMAGES])],
    "Dropout": [(lambda: after_linear(nn.Dropout(0.4)), [ROWS])],
    "EmbeddingBag": [
        (lambda mode=mode: nn.EmbeddingBag(7, 4, mode=mode), [classes(5, 3, count=7)])
        for mode in ("sum", "mean", "max")
    ],
    "Embedding": [
        (lambda: nn.Embedding(7, 4), [classes(5, 2, count=7)]),
        (lambda: nn.Embedding(7, 4, padding_idx=1), [classes(5, 2, count=7)]),
    ],
    "BatchNorm1d": [
        (lambda: nn.BatchNorm1d(6), [ROWS]),
        (lambda: after_linear(nn.BatchNorm1d(6, momentum=None)), [ROWS]),
        (lambda: after_linear(nn.BatchNorm1d(6, affine=False, track_running_stats=False)), [ROWS]),
    ],
    "BatchNorm2d": [(lambda: after_conv(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())), [IMAGES])],
    "LayerNorm": [(lambda: nn.LayerNorm(6), [ROWS]), (lambda: after_conv(nn.LayerNorm([8, 8])), [IMAGES])],
    **{
        f"{name}{d}": [(lambda name=name, d=d, o=o: before_pool(d, getattr(nn, f"{name}{d}")(*o)), [x])]
        for d, x in SIGNALS.items()
        for name, o in POOLS.items()
    },
    **{f"MaxUnpool{d}": [(lambda d=d: Unpooled(d), [x])] for d, x in SIGNALS.items()},
    **{
        name: [
            (lambda name=name, o=o: before_pool(name[-2:], getattr(nn, name)(1, *o)), [SIGNALS[name[-2:]]])
            for o in [(0.5,) if name.startswith("Constant") else ()]
        ]
        for name in names_of(nn.modules.shape.Padding)
    },
    "Flatten": [(lambda: after_conv(nn.Flatten()), [IMAGES])],
    "Unflatten": [(lambda: after_linear(nn.Unflatten(1, (2, 3))), [ROWS])],
    "BCELoss": [(lambda: WithLoss(nn.BCELoss(), nn.Sigmoid()), [ROWS, PROBABILITIES])],
    "BCEWithLogitsLoss": [(lambda: WithLoss(nn.BCEWithLogitsLoss()), [ROWS, PROBABILITIES])],
    "CrossEntropyLoss": [
        (lambda: WithLoss(nn.CrossEntropyLoss()), [ROWS, classes(4, count=6)]),
        (lambda: WithLoss(nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1)), [ROWS, classes(4, count=6)]),
    ],
    "L1Loss": [(lambda: WithLoss(nn.L1Loss()), [ROWS, PROBABILITIES])],
    "MSELoss": [(lambda: WithLoss(nn.MSELoss(reduction="none")), [ROWS, PROBABILITIES])],
    "NLLLoss": [(lambda: WithLoss(nn.NLLLoss(), nn.LogSoftmax(-1)), [ROWS, classes(4, count=6)])],
    "RNN": [(lambda: First(nn.RNN(6, 4, nonlinearity="relu")), [normal(3, 2, 6)])],
    "LSTM": [
        (lambda: First(nn.LSTM(6, 4)), [normal(3, 2, 6)]),
        (lambda: First(nn.LSTM(6, 4, 2, dropout=0.4, bidirectional=True)), [normal(3, 2, 6)]),
    ],
    "GRU": [(lambda: First(nn.GRU(6, 4, batch_first=True)), [normal(3, 2, 6)])],
    "RNNCell": [(lambda: nn.RNNCell(6, 4), [ROWS])],
    "LSTMCell": [(lambda: First(nn.LSTMCell(6, 4)), [ROWS])],
    "GRUCell": [(lambda: nn.GRUCell(6, 4), [ROWS])],
    "MultiheadAttention": [(WithItself, [normal(2, 5, 6)])],
    "TransformerEncoderLayer": [(lambda: nn.TransformerEncoderLayer(6, 2, 8), [normal(5, 2, 6)])],
    "TransformerDecoderLayer": [(lambda: nn.TransformerDecoderLayer(6, 2, 8), [normal(5, 2, 6), normal(3, 2, 6)])],
    "TransformerEncoder": [
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0), 2), [normal(5, 2, 6)])
    ],
    "TransformerDecoder": [
        (
            lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, activation="gelu"), 1, nn.LayerNorm(6)),
            [normal(5, 2, 6), normal(3, 2, 6)],
        )
    ],
    "Transformer": [
        (lambda: nn.Transformer(6, 2, 1, 1, 8, norm_first=True, batch_first=True), [normal(2, 5, 6), normal(2, 3, 6)])
    ],
    **{
        name: [(lambda name=name: WithLoss(getattr(nn, name)()), [ROWS, PROBABILITIES])]
        for name in ("SmoothL1Loss", "HuberLoss", "PoissonNLLLoss", "MultiLabelSoftMarginLoss")
    },
    **{
        name: [(lambda name=name: WithLoss(getattr(nn, name)()), [ROWS, np.sign(normal(4, 6, seed=3))])]
        for name in ("SoftMarginLoss", "HingeEmbeddingLoss")
    },
    **{
        name: [
            (
                lambda name=name: Pair(getattr(nn, name)(reduction="none")),
                [ROWS, normal(4, 6, seed=3), normal(4, 6, seed=4)],
            )
        ]
        for name in ("MarginRankingLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss")
    },
    "CosineEmbeddingLoss": [(lambda: Pair(nn.CosineEmbeddingLoss()), [ROWS, normal(4, 6, seed=3), SIGNS])],
    "GaussianNLLLoss": [(lambda: Pair(nn.GaussianNLLLoss()), [ROWS, normal(4, 6, seed=3), PROBABILITIES])],
    "KLDivLoss": [(lambda: WithLoss(nn.KLDivLoss(reduction="batchmean"), nn.LogSoftmax(-1)), [ROWS, PROBABILITIES])],
    "MultiLabelMarginLoss": [(lambda: WithLoss(nn.MultiLabelMarginLoss()), [ROWS, LABELS])],
    "MultiMarginLoss": [(lambda: WithLoss(nn.MultiMarginLoss()), [ROWS, classes(4, count=6)])],
    "CTCLoss": [(lambda: Frames(), [normal(5, 2, 6), 1 + classes(2, 2)])],
    "BatchNorm3d": [(lambda: nn.BatchNorm3d(3), [VOLUMES])],
    "GroupNorm": [(lambda: after_conv(nn.GroupNorm(2, 4)), [IMAGES])],
    "InstanceNorm1d": [(lambda: nn.InstanceNorm1d(3, affine=True), [VOLUMES[:, :, 0, 0]])],
    "InstanceNorm2d": [(lambda: after_conv(nn.InstanceNorm2d(4, track_running_stats=True)), [IMAGES])],
    "InstanceNorm3d": [(lambda: nn.InstanceNorm3d(3, affine=True, track_running_stats=True), [VOLUMES])],
    "LocalResponseNorm": [(lambda: after_conv(nn.LocalResponseNorm(3)), [IMAGES])],
    "RMSNorm": [(lambda: after_linear(nn.RMSNorm(6)), [ROWS])],
    **{
        name: [(lambda name=name: after_linear(getattr(nn, name)(0.4)), [ROWS])]
        for name in ("AlphaDropout", "FeatureAlphaDropout")
    },
    "Dropout1d": [(lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout1d(0.4)), [normal(3, 4, 6)])],
    "Dropout2d": [(lambda: after_conv(nn.Dropout2d(0.4)), [IMAGES])],
    "Dropout3d": [(lambda: nn.Sequential(nn.BatchNorm3d(3), nn.Dropout3d(0.4)), [VOLUMES])],
    "Bilinear": [(lambda: nn.Bilinear(6, 6, 4), [ROWS, normal(4, 6, seed=3)])],
    **{
        name: [(lambda name=name: WithLoss(getattr(nn, name)()), [ROWS, normal(4, 6, seed=3)])]
        for name in ("CosineSimilarity", "PairwiseDistance")
    },
    "CombinedMarginLoss": [
        (lambda: WithLoss(nn.CombinedMarginLoss(1.1, 0.3, 0.2), nn.Tanh()), [0.1 * ROWS, classes(4, count=6)])
    ],
    "FusedBatchNorm1d": [(lambda: nn.FusedBatchNorm1d(6), [ROWS, normal(4, 6, seed=3)])],
    "FusedBatchNorm2d": [(lambda: nn.FusedBatchNorm2d(2), [normal(2, 2, 3, 3)])],
    "FusedBatchNorm3d": [(lambda: nn.FusedBatchNorm3d(2), [normal(2, 2, 3, 2, 2)])],
    "MinMaxObserver": [(lambda: Quantized(nn.FakeQuantization(), nn.MinMaxObserver()), [ROWS])],
    "MovingAverageMinMaxObserver": [
        (lambda: Quantized(nn.FakeQuantization(), nn.MovingAverageMinMaxObserver(True, momentum=0.9), [0]), [ROWS])
    ],
    "Quantization": [(lambda: Quantized(nn.Quantization(), nn.MinMaxObserver(per_layer_quantization=False)), [ROWS])],
    "FakeQuantization": [(lambda: Quantized(nn.FakeQuantization(*AFFINE), nn.MinMaxObserver(*AFFINE)), [ROWS])],
    "LeNet": [(lambda: models.LeNet(), [normal(4, 1, 28, 28)])],
    "MLP": [(lambda: models.MLP(), [normal(4, 1, 28, 28)])],
}

# class name -> a list of options
OPTIMIZERS: dict[str, list[dict[str, Any]]] = {
    "SGD": [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True},
        {"maximize": True},
    ],
    "Adam": [
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"weight_decay": 0.1, "amsgrad": True},
        {"do_bias_correction": False, "maximize": True},
    ],
    "AdamW": [{"weight_decay": 0.1}, {"amsgrad": True, "betas": (0.8, 0.9)}],
    "RMSprop": [{}, {"centered": True, "momentum": 0.9, "weight_decay": 0.1}],
    "Adadelta": [{}, {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}],
    "Adamax": [{}, {"weight_decay": 0.1, "maximize": True}],
    "RAdam": [{}, {"betas": (0.5, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}],
    "NAdam": [{}, {"betas": (0.5, 0.9), "weight_decay": 0.1, "momentum_decay": 0.5}],
    "LAMB": [{}, {"weight_decay": 0.1, "amsgrad": True}, {"weight_decay": 0.1, "adam_w_mode": False}],
    "ASGD": [{}, {"t0": 2, "lambd": 0.1, "weight_decay": 0.1}],
    "Rprop": [{}],
    "FTRL": [{}, {"lambda1": 0.01, "lambda2": 0.1, "beta": 1.0, "weight_decay": 0.1}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}],
}

# class name -> a list of functions that make one for an optimizer
SCHEDULERS: dict[str, list] = {
    "CosineAnnealingLR": [lambda o: flow.optim.lr_scheduler.CosineAnnealingLR(o, 4, 0.001)],
    "CosineDecayLR": [lambda o: flow.optim.lr_scheduler.CosineDecayLR(o, 3, 0.1)],
    "ExponentialLR": [lambda o: flow.optim.lr_scheduler.ExponentialLR(o, 0.5)],
    "LambdaLR": [lambda o: flow.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step))],
    "LinearLR": [lambda o: flow.optim.lr_scheduler.LinearLR(o, 0.25, 1.0, 3)],
    "MultiStepLR": [lambda o: flow.optim.lr_scheduler.MultiStepLR(o, [1, 3], 0.5)],
    "ConstantLR": [lambda o: flow.optim.lr_scheduler.ConstantLR(o, 0.5, 3)],
    "PolynomialLR": [lambda o: flow.optim.lr_scheduler.PolynomialLR(o, 4, 2.0)],
    "MultiplicativeLR": [lambda o: flow.optim.lr_scheduler.MultiplicativeLR(o, lambda step: 1 / (1 + step))],
    "CosineAnnealingWarmRestarts": [lambda o: flow.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2, 0.001)],
    "OneCycleLR": [lambda o: flow.optim.lr_scheduler.OneCycleLR(o, 0.1, 9, cycle_momentum=False)],
    "CyclicLR": [lambda o: flow.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False)],
    "ChainedScheduler": [
        lambda o: flow.optim.lr_scheduler.ChainedScheduler(
            [flow.optim.lr_scheduler.StepLR(o, 2), flow.optim.lr_scheduler.ExponentialLR(o, 0.9)]
        )
    ],
    "SequentialLR": [
        lambda o: flow.optim.lr_scheduler.SequentialLR(
            o, [flow.optim.lr_scheduler.ConstantLR(o, 0.1, 2), flow.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
        )
    ],
    "StepLR": [lambda o: flow.optim.lr_scheduler.StepLR(o, 2, 0.5)],
    "WarmupLR": [
        lambda o: flow.optim.lr_scheduler.WarmupLR(o, 0.1, 3),
        lambda o: flow.optim.lr_scheduler.WarmupLR(flow.optim.lr_scheduler.StepLR(o, 2), 0.5, 2, "constant"),
    ],
}

CLIPS: list[dict[str, float]] = [
    {"clip_grad_max_norm": 0.1},
    {"clip_grad_max_norm": 1e6},
    {"clip_grad_max_norm": 0.1, "clip_grad_norm_type": 1.0},
    {"clip_grad_max_norm": 0.1, "clip_grad_norm_type": float("inf")},
]
