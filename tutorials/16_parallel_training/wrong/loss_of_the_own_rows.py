"""Returns this rank's summand of the loss.

rejected by: test_training
message: those of the whole batches
"""


def train(comm, params, batches, lr, momentum):
    optimizer, losses = ShardedSGD(comm, params, lr, momentum), []
    for x, labels in batches:
        loss, gradients = own_summands(comm, params, x, labels)
        losses.append(loss)
        params = optimizer.step(params, gradients)
    return losses, params
