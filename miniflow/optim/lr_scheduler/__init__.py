"""Learning rate schedules: `step()`, after each step of the optimizer or each epoch, sets the learning rates."""

from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.lr_scheduler.base import LRScheduler as _LRScheduler  # its older name
from miniflow.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from miniflow.optim.lr_scheduler.cycles import CyclicLR, OneCycleLR
from miniflow.optim.lr_scheduler.plateau import ReduceLROnPlateau
from miniflow.optim.lr_scheduler.schedules import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CosineDecayLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from miniflow.optim.lr_scheduler.warmup import WarmUpLR, WarmupLR
