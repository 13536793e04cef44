"""Automatic differentiation from nothing. Fill in what raises Todo, then run: python -m tutorials check 2"""

import numpy as np

from tutorials import Todo  # noqa: F401


class Variable:
    """A value, and how it was computed.

    Attributes:
        value: a NumPy array of float64; a number is an array of shape ().
        parents: the variables that it was computed from.
        pull: takes the gradient of the result, and returns those of the parents, one for each.
        grad: None until `backward` sets it.
    """

    def __init__(self, value, parents=(), pull=None):
        self.value = np.asarray(value, np.float64)
        self.parents = parents
        self.pull = pull
        self.grad = None

    def __repr__(self):
        return f"Variable({self.value})"


def sum_to(array, shape):
    """Add up over the dimensions along which `shape` was broadcast: lesson 1."""
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    return array.sum(axis=tuple(d for d, n in enumerate(shape) if n == 1), keepdims=True)


def add(a, b):
    """a + b"""
    # task 2.1: the rules of sums and products
    return Variable(a.value + b.value, (a, b), lambda g: (g, g))
    # end


def mul(a, b):
    """a * b"""
    # task 2.1: the rules of sums and products
    return Variable(a.value * b.value, (a, b), lambda g: (g * b.value, g * a.value))
    # end


def exp(a):
    """e to the power of a"""
    # task 2.2: the rules of functions of one number
    y = np.exp(a.value)
    return Variable(y, (a,), lambda g: (g * y,))
    # end


def power(a, k):
    """a to the power of a fixed number k"""
    # task 2.2: the rules of functions of one number
    return Variable(a.value**k, (a,), lambda g: (g * k * a.value ** (k - 1),))
    # end


def relu(a):
    """a where it is positive, else 0"""
    # task 2.2: the rules of functions of one number
    return Variable(np.maximum(a.value, 0), (a,), lambda g: (np.where(a.value > 0, g, 0.0),))
    # end


def order(root):
    """All variables that `root` was computed from, and itself: each once, and after all of its parents."""
    # task 2.3: an order in which parents come first
    result, seen, stack = [], {root}, [(root, iter(root.parents))]
    while stack:
        variable, rest = stack[-1]
        for parent in rest:
            if parent not in seen:
                seen.add(parent)
                stack.append((parent, iter(parent.parents)))
                break
        else:
            result.append(variable)
            stack.pop()
    return result
    # end


def backward(root):
    """Add the gradient of `root`, a number, to `grad` of every variable that it was computed from."""
    # task 2.4: from the result back to its inputs
    gradients = {root: np.ones(())}
    for variable in reversed(order(root)):
        gradient = gradients[variable]
        variable.grad = gradient if variable.grad is None else variable.grad + gradient
        if variable.pull is not None:
            for parent, part in zip(variable.parents, variable.pull(gradient)):
                part = sum_to(part, parent.value.shape)
                gradients[parent] = gradients[parent] + part if parent in gradients else part
    # end


def matmul(a, b):
    """The product of two matrices."""
    # task 2.5: the rules of matrix products and sums
    return Variable(a.value @ b.value, (a, b), lambda g: (g @ b.value.T, a.value.T @ g))
    # end


def total(a):
    """The sum of all elements."""
    # task 2.5: the rules of matrix products and sums
    return Variable(a.value.sum(), (a,), lambda g: (np.full(a.value.shape, g),))
    # end


def descend(parameters, loss_of, rate, steps):
    """Lower a loss by gradient descent, and return what it was before each step.

    `loss_of()` computes the loss from the parameters; each step moves their values by `rate` against the gradient.
    """
    # task 2.6: gradient descent
    losses = []
    for _ in range(steps):
        for p in parameters:
            p.grad = None
        loss = loss_of()
        backward(loss)
        losses.append(float(loss.value))
        for p in parameters:
            p.value = p.value - rate * p.grad
    return losses
    # end
