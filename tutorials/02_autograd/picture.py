"""The picture of lesson 2: what a small network that your engine trains makes of two moons, and its loss."""

import matplotlib.pyplot as plt
import numpy as np

STEPS, RATE, HIDDEN = 400, 0.1, 16


def moons(count=200):
    """Points (2, count) of two interleaved half circles, and -1 or 1 for each."""
    rng = np.random.default_rng(0)
    angle, side = rng.uniform(0, np.pi, count), rng.choice([-1.0, 1.0], count)
    points = np.stack([side * np.cos(angle) + 0.5 * (1 - side), side * np.sin(angle) + 0.25 * (1 - side)])
    return points + 0.1 * rng.standard_normal(points.shape), side


def train(impl):
    """A network of one hidden layer, as a function of points, and the losses of its training."""
    rng = np.random.default_rng(1)
    points, side = moons()
    w1, b1 = impl.Variable(rng.standard_normal((HIDDEN, 2))), impl.Variable(np.zeros((HIDDEN, 1)))
    w2, b2 = impl.Variable(rng.standard_normal((1, HIDDEN)) / HIDDEN**0.5), impl.Variable(np.zeros((1, 1)))

    def network(x):
        hidden = impl.relu(impl.add(impl.matmul(w1, impl.Variable(x)), b1))
        return impl.add(impl.matmul(w2, hidden), b2)

    def loss_of():
        error = impl.add(network(points), impl.Variable(-side))
        return impl.mul(impl.total(impl.mul(error, error)), impl.Variable(1 / side.size))

    return network, impl.descend([w1, b1, w2, b2], loss_of, RATE, STEPS)


def draw(impl):
    """The decision of the network for each point of the plane, beside the loss of each step."""
    network, losses = train(impl)
    points, side = moons()
    grid = np.linspace(-1.6, 2.6, 120), np.linspace(-1.2, 1.7, 90)
    plane = np.stack([x.ravel() for x in np.meshgrid(*grid)])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    scores = network(plane).value.reshape(90, 120)
    left.contourf(*grid, scores, levels=[-9, -1, -0.5, 0, 0.5, 1, 9], cmap="RdBu", alpha=0.6)
    left.scatter(*points, c=side, cmap="RdBu", edgecolors="black", s=14)
    right_share = float(((network(points).value.ravel() > 0) == (side > 0)).mean())
    left.set(title=f"two moons: {right_share:.0%} of the points on the right side")
    right.semilogy(losses)
    right.set(title=f"loss: {losses[-1]:.3f} after {len(losses)} steps", xlabel="step")
    return figure
