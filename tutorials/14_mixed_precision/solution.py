"""Mixed precision, resuming, recomputation. Fill in what raises Todo, then run: python -m tutorials check 14"""

import os  # noqa: F401

import numpy as np

import miniflow as flow
from tutorials import Todo  # noqa: F401


def round_to_bfloat16(x):
    """Round a NumPy array of float32 to the nearest numbers of bfloat16. Returns a new array of float32.

    Halfway between two numbers, take that whose last bit is 0. NaN stays NaN; what is too large becomes inf.
    """
    # task 14.1: the numbers of half precision
    bits = x.view(np.uint32)
    last = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last) & 0xFFFF0000
    return np.where(np.isnan(x), x, rounded.view(np.float32))
    # end


def to_float16(x):
    """A NumPy array in float16, without a warning for what becomes inf."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16)


def lost(gradients, scale):
    """Which shares of the gradients become 0, and inf, when they are multiplied by `scale` and stored as float16.

    Args:
        gradients: NumPy array of float32; the zeros among them do not count.

    Returns:
        two numbers from 0 to 1.
    """
    # task 14.1: the numbers of half precision
    stored = to_float16(gradients[gradients != 0] * scale)
    return (stored == 0).mean(), np.isinf(stored).mean()
    # end


class LossScaler:
    """Dynamic loss scaling.

    Attributes:
        factor: what the loss is multiplied by.
        good_steps: how many steps in a row were taken at this factor.
        interval: after so many good steps the factor is doubled.
    """

    def __init__(self, factor=2.0**16, interval=2000):
        self.factor = factor
        self.good_steps = 0
        self.interval = interval

    def scale(self, loss):
        """The loss, a tensor, multiplied by the factor."""
        # task 14.2: loss scaling
        return loss * self.factor
        # end

    def step(self, optimizer, parameters):
        """Divide the gradients by the factor, call `optimizer.step()` if all are finite, and adapt the factor.

        Args:
            parameters: a list; the gradients are changed in place, and some may be None.

        Returns:
            whether the optimizer made its step.
        """
        # task 14.2: loss scaling
        gradients = [p.grad for p in parameters if p.grad is not None]
        for g in gradients:
            g.div_(self.factor)
        if not all(g.isfinite().all().item() for g in gradients):
            self.factor = max(self.factor / 2, 1.0)
            self.good_steps = 0
            return False
        optimizer.step()
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.factor *= 2
            self.good_steps = 0
        return True
        # end

    def state_dict(self):
        """What has to be saved: a dict of `factor` and `good_steps`."""
        # task 14.2: loss scaling
        return {"factor": self.factor, "good_steps": self.good_steps}
        # end

    def load_state_dict(self, state):
        """Go on from such a dict."""
        # task 14.2: loss scaling
        self.factor, self.good_steps = state["factor"], state["good_steps"]
        # end


def train_step(model, loss_function, optimizer, scaler, x, labels):
    """One step in mixed precision, with float16 on the CPU. Returns the loss, not scaled, as a Python float.

    Args:
        model: a module, with parameters of float32.
        loss_function: takes `model(x)` and the labels.
        scaler: has `scale(loss)` and `step(optimizer, parameters)` as `LossScaler` has.
    """
    # task 14.3: a training step
    with flow.autocast("cpu", dtype=flow.float16):
        loss = loss_function(model(x), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer, list(model.parameters()))
    return loss.item()
    # end


def save_run(path, parts, write=flow.save):
    """Save a training run to one file. If `write` fails, the file `path` is as it was before.

    Args:
        path: a `Path`.
        parts: a dict: name -> model, optimizer, scheduler or scaler; each has `state_dict` and `load_state_dict`.
        write: `write(state, path)` writes a dict of dicts and tensors to a new file, bit by bit.
    """
    # task 14.4: stop and resume
    state = {name: part.state_dict() for name, part in parts.items()}
    state["random"] = flow.get_rng_state()
    temporary = path.with_name(path.name + ".tmp")
    write(state, temporary)
    os.replace(temporary, path)
    # end


def load_run(path, parts):
    """Bring the parts, and the random generator, to the state that `save_run` saved."""
    # task 14.4: stop and resume
    state = flow.load(path)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    flow.set_rng_state(state["random"])
    # end


class Recomputed(flow.autograd.Function):
    """A function of which only the input is kept; backward computes the rest again."""

    @staticmethod
    def forward(ctx, function, x):
        """The result `function(x)`; nothing is recorded here."""
        # task 14.5: compute again
        ctx.function, ctx.random = function, flow.get_rng_state()
        ctx.save_for_backward(x)
        return function(x)
        # end

    @staticmethod
    def backward(ctx, dy):
        """The gradients of `function`, which is None, and of x; those of parameters add up in their `grad`."""
        # task 14.5: compute again
        x = ctx.saved_tensors[0].detach().requires_grad_()
        later = flow.get_rng_state()
        flow.set_rng_state(ctx.random)
        with flow.enable_grad():
            y = ctx.function(x)
        flow.set_rng_state(later)
        y.backward(dy)
        return None, x.grad
        # end


def checkpoint(function, x):
    """`function(x)`, for a tensor that requires grad, computed again in backward."""
    return Recomputed.apply(function, x)
