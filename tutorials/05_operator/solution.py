"""Two operators for miniflow. Fill in what raises Todo, then run: python -m tutorials check 5"""

import numpy as np  # noqa: F401

import miniflow as flow
from miniflow.backends.cuda.launch import each
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ShapeError
from miniflow.formulas.scalar import abs, sqrt, where
from miniflow.hostcuda import cuda
from miniflow.ops.promotion import require_floating, require_one_dtype
from tutorials import Todo  # noqa: F401


def squareplus(x, b):
    """(x + sqrt(x^2 + b)) / 2, of two scalars, for b > 0: a smooth relu(x). Accurate for negative x, too."""
    # task 5.1: a formula for every target
    larger = (abs(x) + sqrt(x * x + b)) / 2
    return where(x > 0, larger, b / (4 * larger))
    # end


def squareplus_grad_x(dy, x, b, out):
    """The gradient of x; dy is that of the result, and out the result."""
    # task 5.2: its gradients
    return dy * out / sqrt(x * x + b)
    # end


def squareplus_grad_b(dy, x, b):
    """The gradient of b; dy is that of the result."""
    # task 5.2: its gradients
    return dy / (4 * sqrt(x * x + b))
    # end


def recurrence(x, a):
    """y[t] = a[t] * y[t - 1] + x[t] along the first dim, for tensors (steps, columns); before the first step y is 0."""
    return call(Recurrence, x, a)


class Recurrence(Op):
    """The operator: its shape rule and its gradient."""

    saves = ("a", "y")  # what `backward` finds in ctx.saved: inputs and results, by name

    def infer(x, a):
        """The shape and the NumPy dtype of y, for two arrays: both are those of x.

        Raises:
            ShapeError: if x is not of two dims, or if the shapes differ; the message begins with "recurrence: " and
                has both shapes.
            DTypeError: for integers, and for two dtypes.
        """
        # task 5.3: the shape rule
        require_floating("recurrence", x)
        require_one_dtype("recurrence", x, a)
        if x.ndim != 2 or x.shape != a.shape:
            raise ShapeError(f"recurrence: got shapes {x.shape} and {a.shape}; expected both to be (steps, columns)")
        return x.shape, x.dtype
        # end

    def backward(ctx, dy):
        """The gradients of x and a."""
        return recurrence_gradients(*ctx.saved, dy)


def recurrence_cpu(y, x, a):
    """Write the result into y; all three are NumPy arrays (steps, columns)."""
    # task 5.4: on the CPU
    state = 0
    for t in range(len(x)):
        state = a[t] * state + x[t]
        y[t] = state
    # end


@cuda.jit
def recurrence_kernel(x, a, y):
    """Thread j computes column j of y (steps, columns); there may be more threads than columns."""
    # task 5.5: on CUDA devices
    j = cuda.grid(1)
    if j < y.shape[1]:
        state = x.dtype.type(0)
        for t in range(y.shape[0]):
            state = a[t, j] * state + x[t, j]
            y[t, j] = state
    # end


def recurrence_cuda(y, x, a):
    """The same as `recurrence_cpu` for arrays on a CUDA device: launch at least one thread for each column."""
    each(recurrence_kernel, x.shape[1], x, a, y)


def recurrence_gradients(a, y, dy):
    """The gradients of x and of a, as a pair; dy is that of y. All are tensors."""
    # task 5.6: the gradient
    next_a = flow.roll(a, -1, 0)
    dx = recurrence(dy.flip(0), next_a.flip(0)).flip(0)
    previous = flow.cat([flow.zeros_like(y[:1]), y[:-1]])
    return dx, dx * previous
    # end
