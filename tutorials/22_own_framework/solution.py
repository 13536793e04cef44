"""Your own framework. Fill in what raises Todo, then run: python -m tutorials check 22

A variable is that of lesson 2: it has `value`, a NumPy array of float64, and `grad`. Images are (N, C, H, W).
"""

import numpy as np

import miniflow as flow
from tutorials import Todo  # noqa: F401
from tutorials.own import assembled

mine = assembled()
Variable = mine.autograd.Variable
CURVE = 0.1  # b of squareplus


def conv2d(x, weight, bias, stride, padding):
    """The convolution of lesson 9 as an operator on variables: (N, O, OH, OW), with gradients for all three."""
    # task 22.1: a convolution that can be differentiated
    y = mine.convolution.conv2d_unfold(x.value, weight.value, bias.value, stride, padding)

    def pull(g):
        kernel = weight.value.shape[2:]
        parameters = mine.convolution.parameter_gradients(g, x.value, kernel, stride, padding)
        return mine.convolution.input_gradient(g, weight.value, x.value.shape, stride, padding), *parameters

    return Variable(y, (x, weight, bias), pull)
    # end


def squareplus(x):
    """The operator of lesson 5 with b = CURVE, element by element."""
    # task 22.2: operators of one input
    y = mine.operator.squareplus(x.value, CURVE)
    return Variable(y, (x,), lambda g: (mine.operator.squareplus_grad_x(g, x.value, CURVE, y),))
    # end


def flatten(x):
    """(N, C, H, W) -> (N, C * H * W)"""
    # task 22.2: operators of one input
    return Variable(mine.convolution.flatten(x.value, 1), (x,), lambda g: (g.reshape(x.value.shape),))
    # end


def transpose(x):
    """(M, N) -> (N, M)"""
    # task 22.2: operators of one input
    return Variable(x.value.T, (x,), lambda g: (g.T,))
    # end


def cross_entropy(logits, labels):
    """The mean cross-entropy of lesson 4, for logits (N, classes), a variable, and labels (N,), an array of int64."""
    # task 22.3: the loss
    loss = mine.training.cross_entropy(flow.tensor(logits.value), flow.tensor(labels)).item()

    def pull(g):
        powers = np.exp(logits.value - logits.value.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
        shares[np.arange(len(labels)), labels] -= 1
        return (g * shares / len(labels),)

    return Variable(loss, (logits,), pull)
    # end


class Linear:
    """x W^T + b; W and b begin as those of lesson 4's `Linear`.

    Attributes:
        weight: W, a variable (outputs, inputs).
        bias: b, a variable (outputs,).
    """

    def __init__(self, inputs, outputs):
        # task 22.4: modules
        self.weight, self.bias = (
            Variable(p.detach().numpy()) for p in mine.training.Linear(inputs, outputs).parameters()
        )
        # end

    def __call__(self, x):
        # task 22.4: modules
        return mine.autograd.add(mine.autograd.matmul(x, transpose(self.weight)), self.bias)
        # end

    def parameters(self):
        """A list of the variables that training changes."""
        # task 22.4: modules
        return [self.weight, self.bias]
        # end


class Conv2d:
    """A convolution with a square kernel; its parameters begin as those of a `Linear` layer with as many inputs.

    Attributes:
        weight: a variable (outputs, inputs, size, size).
        bias: a variable (outputs,).
    """

    def __init__(self, inputs, outputs, size, stride, padding):
        self.stride, self.padding = stride, padding
        # task 22.4: modules
        layer = Linear(inputs * size * size, outputs)
        self.weight, self.bias = Variable(layer.weight.value.reshape(outputs, inputs, size, size)), layer.bias
        # end

    def __call__(self, x):
        # task 22.4: modules
        return conv2d(x, self.weight, self.bias, self.stride, self.padding)
        # end

    def parameters(self):
        """A list of the variables that training changes."""
        # task 22.4: modules
        return [self.weight, self.bias]
        # end


class Optimizer:
    """An optimizer of lesson 4 for variables.

    Attributes:
        variables: what it changes.
        tensors: the optimizer's own parameters, a tensor for each variable.
        inner: the optimizer of the tensors.
    """

    def __init__(self, variables, make):
        """`make` takes a list of tensors, and returns an optimizer of lesson 4."""
        self.variables = list(variables)
        self.tensors = [flow.tensor(v.value, requires_grad=True) for v in self.variables]
        self.inner = make(self.tensors)

    def zero_grad(self):
        """Forget the gradients of the variables: they are None afterwards."""
        # task 22.5: an optimizer for variables
        for v in self.variables:
            v.grad = None
        # end

    def step(self, rate):
        """One step with this learning rate, `lr` of the inner optimizer, which changes `value` of the variables.

        A tensor gets the gradient of its variable, None if that is None; after the step the variable gets the tensor's
        numbers.
        """
        # task 22.5: an optimizer for variables
        for v, tensor in zip(self.variables, self.tensors):
            tensor.grad = None if v.grad is None else flow.tensor(v.grad)
        self.inner.lr = rate
        self.inner.step()
        for v, tensor in zip(self.variables, self.tensors):
            v.value = tensor.detach().numpy().copy()
        # end


def train_epoch(model, optimizer, loader, rate_of, first):
    """Take one step for each batch, and return the losses before the steps, a list of floats.

    Args:
        model: takes a variable with images, returns one with logits.
        optimizer: an `Optimizer`.
        loader: of lesson 10; it gives pairs of tensors, images (N, 1, H, W) and labels (N,).
        rate_of: from the number of a step to its learning rate.
        first: the number of the first step of this epoch.
    """
    # task 22.6: training
    losses = []
    for step, (images, labels) in enumerate(loader, start=first):
        loss = cross_entropy(model(Variable(images.numpy())), labels.numpy())
        optimizer.zero_grad()
        mine.autograd.backward(loss)
        optimizer.step(rate_of(step))
        losses.append(float(loss.value))
    return losses
    # end


def accuracy(model, images, labels):
    """The share of the images, an array (N, 1, H, W), for which the largest logit is that of the label: a float."""
    # task 22.6: training
    return float((model(Variable(images)).value.argmax(axis=1) == labels).mean())
    # end


def network():
    """Two convolutions that halve height and width, and a linear layer: images (N, 1, 28, 28) to logits (N, 10)."""
    layers = Conv2d(1, 8, 5, 2, 2), squareplus, Conv2d(8, 16, 3, 2, 1), squareplus, flatten, Linear(16 * 7 * 7, 10)
    return mine.training.Sequential(*layers)
