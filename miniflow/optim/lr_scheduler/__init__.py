"""Learning rate schedules: `step()`, after each step of the optimizer or each epoch, sets the learning rates."""

from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.lr_scheduler.plateau import ReduceLROnPlateau
from miniflow.optim.lr_scheduler.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    StepLR,
)
from miniflow.optim.lr_scheduler.warmup import WarmUpLR, WarmupLR
