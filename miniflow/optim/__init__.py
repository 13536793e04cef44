"""Optimizers and learning rate schedules. `optimizer.py` is the base; each rule is in a file of its own."""

from miniflow.optim import lr_scheduler, swa_utils
from miniflow.optim.adadelta import Adadelta
from miniflow.optim.adagrad import Adagrad
from miniflow.optim.adam import Adam, AdamW
from miniflow.optim.adamax import Adamax
from miniflow.optim.asgd import ASGD
from miniflow.optim.ftrl import FTRL
from miniflow.optim.lamb import LAMB
from miniflow.optim.lbfgs import LBFGS
from miniflow.optim.nadam import NAdam
from miniflow.optim.optimizer import Optimizer
from miniflow.optim.radam import RAdam
from miniflow.optim.rmsprop import RMSprop
from miniflow.optim.rprop import Rprop
from miniflow.optim.sgd import SGD
from miniflow.optim.sparse import SparseAdam

__all__ = [
    "ASGD", "FTRL", "LAMB", "LBFGS", "NAdam", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
