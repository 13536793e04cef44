"""Modules, losses and optimizers. Fill in what raises Todo, then run: python -m tutorials check 4"""

import miniflow as flow
from tutorials import Todo  # noqa: F401


class Linear:
    """x W^T + b

    Attributes:
        weight: W, (out_features, in_features), drawn uniformly from -k to k, where k = 1 / sqrt(in_features).
        bias: b, (out_features,), drawn from the same range.
    """

    def __init__(self, in_features, out_features):
        # task 4.1: modules
        k = 1 / in_features**0.5
        self.weight = flow.empty(out_features, in_features).uniform_(-k, k).requires_grad_()
        self.bias = flow.empty(out_features).uniform_(-k, k).requires_grad_()
        # end

    def __call__(self, x):
        # task 4.1: modules
        return x @ self.weight.T + self.bias
        # end

    def parameters(self):
        """A list of the tensors that training changes."""
        # task 4.1: modules
        return [self.weight, self.bias]
        # end


class Sequential:
    """Layers, each applied to the result of the one before; a layer may also be a function, such as `flow.relu`."""

    def __init__(self, *layers):
        self.layers = layers

    def __call__(self, x):
        # task 4.1: modules
        for layer in self.layers:
            x = layer(x)
        return x
        # end

    def parameters(self):
        """A list of the parameters of all layers, in their order; a function has none."""
        # task 4.1: modules
        return [p for layer in self.layers if hasattr(layer, "parameters") for p in layer.parameters()]
        # end


def cross_entropy(logits, labels):
    """The mean over the rows of -log softmax(logits)[label], for logits (N, classes) and labels (N,) of int64."""
    # task 4.2: the cross-entropy
    shifted = logits - logits.amax(dim=1, keepdim=True)
    log_total = shifted.exp().sum(dim=1).log()
    chosen = shifted.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (log_total - chosen).mean()
    # end


class Optimizer:
    """What all optimizers share: a list of parameters."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        """Forget the gradients: `grad` of every parameter is None afterwards."""
        # task 4.3: SGD with momentum
        for p in self.parameters:
            p.grad = None
        # end


class SGD(Optimizer):
    """Stochastic gradient descent. Each parameter p with gradient g has a velocity v, which is 0 at the start:

    v <- momentum v + g,   p <- p - lr v
    """

    def __init__(self, parameters, lr, momentum=0.0):
        super().__init__(parameters)
        self.lr, self.momentum = lr, momentum
        # task 4.3: SGD with momentum
        self.velocities = [flow.zeros_like(p) for p in self.parameters]
        # end

    def step(self):
        """Change the parameters in place; those whose `grad` is None stay as they are."""
        # task 4.3: SGD with momentum
        with flow.no_grad():
            for p, v in zip(self.parameters, self.velocities):
                if p.grad is not None:
                    v *= self.momentum
                    v += p.grad
                    p -= self.lr * v
        # end


class Adam(Optimizer):
    """Adam. Each parameter p with gradient g has a mean m and a mean square s, which are 0 at the start. In step t:

    m <- beta1 m + (1 - beta1) g,   s <- beta2 s + (1 - beta2) g^2
    p <- p - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps)
    """

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(parameters)
        self.lr, self.betas, self.eps = lr, betas, eps
        # task 4.4: Adam
        self.steps = 0
        self.means = [flow.zeros_like(p) for p in self.parameters]
        self.squares = [flow.zeros_like(p) for p in self.parameters]
        # end

    def step(self):
        """Change the parameters in place; those whose `grad` is None stay as they are."""
        # task 4.4: Adam
        self.steps += 1
        beta1, beta2 = self.betas
        with flow.no_grad():
            for p, m, s in zip(self.parameters, self.means, self.squares):
                if p.grad is not None:
                    m *= beta1
                    m += (1 - beta1) * p.grad
                    s *= beta2
                    s += (1 - beta2) * p.grad * p.grad
                    root = (s / (1 - beta2**self.steps)).sqrt()
                    p -= self.lr * (m / (1 - beta1**self.steps)) / (root + self.eps)
        # end


def accuracy(model, inputs, labels):
    """The share of the inputs for which the largest logit is that of the label, a float; nothing is recorded."""
    # task 4.5: training
    with flow.no_grad():
        return (model(inputs).argmax(dim=1) == labels).float().mean().item()
    # end


def train(model, loss_of, optimizer, batches, epochs):
    """Take one step for each batch, and return the losses before each step, a list of floats.

    Args:
        model: takes the inputs of a batch, returns its predictions.
        loss_of: takes predictions and targets, returns the loss.
        optimizer: has `zero_grad()` and `step()`.
        batches: what can be looped over many times, for instance a loader; each time it gives pairs (inputs, targets).
        epochs: how often to go through all batches.
    """
    # task 4.5: training
    losses = []
    for _ in range(epochs):
        for inputs, targets in batches:
            loss = loss_of(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
    # end
