"""Optimizers and learning rate schedules. `optimizer.py` is the base; each rule is in a file of its own."""

from miniflow.optim import lr_scheduler
from miniflow.optim.adagrad import Adagrad
from miniflow.optim.adam import Adam, AdamW
from miniflow.optim.optimizer import Optimizer
from miniflow.optim.rmsprop import RMSprop
from miniflow.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
