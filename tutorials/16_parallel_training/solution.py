"""Parallel training. Fill in what raises Todo, then run: python -m tutorials check 16

Each function runs on all ranks at once. `comm` is this rank's connection to the others, see `ranks.py`.
"""

import numpy as np

import miniflow as flow
from tutorials import Todo  # noqa: F401


def loss_and_gradients(params, x, labels):
    """The mean cross-entropy of relu(x w1 + b1) w2 + b2 over the rows of x, and its gradients.

    Args:
        params: a list of w1 (inputs, hidden), b1 (hidden,), w2 (hidden, classes), b2 (classes,).

    Returns:
        a float, and a list of one gradient for each parameter. Without rows all of them are 0.
    """
    w1, b1, w2, b2 = leaves = [flow.tensor(p, requires_grad=True) for p in params]
    logits = flow.relu(flow.tensor(x) @ w1 + b1) @ w2 + b2
    loss = flow.nn.functional.cross_entropy(logits, flow.tensor(labels), reduction="sum") / max(1, len(x))
    loss.backward()
    return loss.item(), [p.grad.numpy() for p in leaves]


def flatten(arrays):
    """All elements of a list of arrays, one after the other, in one flat array."""
    return np.concatenate([x.reshape(-1) for x in arrays])


def unflatten(flat, like):
    """The inverse: a list of arrays with the shapes of those in `like`."""
    ends = np.cumsum([x.size for x in like])
    return [part.reshape(x.shape) for part, x in zip(np.split(flat, ends[:-1]), like)]


def own_summands(comm, params, x, labels):
    """This rank's summands of the loss and the gradients of a batch; nothing is sent.

    Args:
        x, labels: the whole batch, the same on all ranks. The rank computes with its part only.

    Returns:
        a float, and a list of arrays. Added up over all ranks, they are `loss_and_gradients(params, x, labels)`.
    """
    # task 16.1: data parallel
    mine = np.array_split(x, comm.size)[comm.rank]
    loss, gradients = loss_and_gradients(params, mine, np.array_split(labels, comm.size)[comm.rank])
    share = len(mine) / len(x)
    return share * loss, [share * g for g in gradients]
    # end


def data_parallel(comm, params, x, labels):
    """The loss, a float, and the gradients of the whole batch, on all ranks: one all-reduce for each of them."""
    # task 16.1: data parallel
    loss, gradients = own_summands(comm, params, x, labels)
    return float(comm.all_reduce(np.array(loss))), [comm.all_reduce(g) for g in gradients]
    # end


def buckets(sizes, limit):
    """Groups of parameters whose gradients are sent together: a list of lists of positions, the last position first.

    Args:
        sizes: the bytes of each parameter, in the order of forward.
        limit: bytes of a group. A parameter that is larger has a group of its own.
    """
    # task 16.2: buckets
    groups, room = [], 0
    for position in reversed(range(len(sizes))):
        if sizes[position] > room:
            groups.append([])
            room = limit
        groups[-1].append(position)
        room -= sizes[position]
    return groups
    # end


def reduce_buckets(comm, gradients, groups):
    """The sums of the gradients over all ranks, a list in the order of `gradients`: one all-reduce for each group."""
    # task 16.2: buckets
    sums = dict()
    for group in groups:
        members = [gradients[position] for position in group]
        sums.update(zip(group, unflatten(comm.all_reduce(flatten(members)), members)))
    return [sums[position] for position in range(len(gradients))]
    # end


def finish_time(ready, sizes, groups, latency, rate):
    """When the last all-reduce ends, in seconds.

    Args:
        ready: when backward has the gradient of each parameter.
        sizes: the bytes of each parameter.
        groups: as `buckets` returns them.
        latency, rate: an all-reduce of b bytes takes latency + b / rate.
    """
    # task 16.2: buckets
    end = 0.0
    for group in groups:
        start = max(end, max(ready[position] for position in group))
        end = start + latency + sum(sizes[position] for position in group) / rate
    return end
    # end


def block_forward(comm, x, w1, b1, w2, b2):
    """relu(x w1 + b1) w2 + b2, by hidden units that are split over the ranks; one collective.

    Args:
        x: (rows, inputs), the same on all ranks.
        w1, b1: this rank's columns of (inputs, hidden), and its part of (hidden,).
        w2, b2: this rank's rows of (hidden, outputs); all of (outputs,).

    Returns:
        the result (rows, outputs), the same on all ranks, and this rank's hidden units, after relu.
    """
    # task 16.3: tensor parallel
    hidden = np.maximum(x @ w1 + b1, 0)
    return comm.all_reduce(hidden @ w2) + b2, hidden
    # end


def block_backward(comm, x, hidden, w1, w2, gradient):
    """The gradients of x, w1, b1, w2 and b2, a tuple; those of the parameters as this rank holds them; one collective.

    Args:
        x, w1, w2: as for `block_forward`.
        hidden: what that returned.
        gradient: that of the result, the same on all ranks.
    """
    # task 16.3: tensor parallel
    back = (gradient @ w2.T) * (hidden > 0)
    return comm.all_reduce(back @ w1.T), x.T @ back, back.sum(0), hidden.T @ gradient, gradient.sum(0)
    # end


class ShardedSGD:
    """SGD with momentum, v <- momentum v + g, p <- p - lr v, where each rank has only its part of v.

    The part is `np.array_split(flatten(params), comm.size)[comm.rank]` of the flat parameters.
    """

    def __init__(self, comm, params, lr, momentum):
        self.comm, self.lr, self.momentum = comm, lr, momentum
        # task 16.4: a sharded optimizer
        self.velocity = np.zeros_like(np.array_split(flatten(params), comm.size)[comm.rank])
        # end

    def step(self, params, summands):
        """The new parameters, a list, the same on all ranks.

        Args:
            params: a list of arrays, the same on all ranks. Not changed.
            summands: this rank's summands of their gradients.
        """
        # task 16.4: a sharded optimizer
        gradient = self.comm.reduce_scatter(flatten(summands))
        self.velocity = self.momentum * self.velocity + gradient
        own = np.array_split(flatten(params), self.comm.size)[self.comm.rank] - self.lr * self.velocity
        return unflatten(self.comm.all_gather(own), params)
        # end


def train(comm, params, batches, lr, momentum):
    """Take one step of ShardedSGD for each batch.

    Args:
        batches: a list of pairs (x, labels), the whole batches.

    Returns:
        the loss of each whole batch before its step, a list of floats; and the parameters after the last step.
    """
    # task 16.5: training
    optimizer = ShardedSGD(comm, params, lr, momentum)
    losses = []
    for x, labels in batches:
        loss, gradients = own_summands(comm, params, x, labels)
        losses.append(float(comm.all_reduce(np.array(loss))))
        params = optimizer.step(params, gradients)
    return losses, params
    # end
