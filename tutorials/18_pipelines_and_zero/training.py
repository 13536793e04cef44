"""What lesson 18 trains: models, batches, and a graph whose ranks share the batch, with or without ZeRO."""

import numpy as np

import miniflow as flow
from miniflow import nn

S, B = flow.sbp.split, flow.sbp.broadcast


def blocks(seed, widths):
    """A list of modules, tanh(x W + b): the first from widths[0] to widths[1] numbers, and so on."""
    flow.manual_seed(seed)
    return [nn.Sequential(nn.Linear(m, n), nn.Tanh()) for m, n in zip(widths, widths[1:])]


def layers(seed, widths):
    """A module of linear layers without bias, with tanh between them."""
    flow.manual_seed(seed)
    parts = [part for m, n in zip(widths, widths[1:]) for part in (nn.Linear(m, n, bias=False), nn.Tanh())]
    return nn.Sequential(*parts[:-1])


def batch(seed, rows, widths):
    """Inputs (rows, widths[0]) and targets (rows, widths[-1]), two float32 arrays."""
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((rows, widths[0])), rng.standard_normal((widths[0], widths[-1]))
    return x.astype(np.float32), np.tanh(x @ weight / 2).astype(np.float32)


def spread(array, placement, sbp=B):
    """A global tensor with the values of an array."""
    return flow.tensor(array, placement=placement, sbp=B).to_global(sbp=sbp)


class DataParallel(nn.Graph):
    """Trains on global tensors: the module's parameters are B, and batches S(0).

    Args:
        model, optimizer: of the module's parameters.
        zero: the stage of ZeRO, 0 for none.
        parts: how many micro-batches.
    """

    def __init__(self, model, optimizer, zero=0, parts=1):
        super().__init__()
        self.model, self.loss = model, nn.MSELoss()
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(parts)
        if zero:
            self.config.enable_zero(stage=zero, shard_min_size=1)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def held(optimizer, rank):
    """The bytes of an optimizer's parameters on a rank, and those of its states for them."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [x for p in parameters for x in optimizer.state[p].values() if isinstance(x, flow.Tensor) and x.ndim]
    return tuple(sum(x.shards[rank].numel() * x.element_size() for x in some) for some in (parameters, states))


def counted(function, *arguments):
    """The result of a call, and the bytes that all ranks send in it: a dict by collective."""
    before = flow.parallel.stats()
    result = function(*arguments)
    sent = {name: total - before.get(name, 0) for name, total in flow.parallel.stats().items()}
    return result, {name: nbytes for name, nbytes in sent.items() if nbytes}
