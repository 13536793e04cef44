"""Steps along the sum of all gradients so far.

rejected by: test_descent
message: are the gradients those of this step alone?
"""


def descend(parameters, loss_of, rate, steps):
    losses = []
    for _ in range(steps):
        loss = loss_of()
        backward(loss)
        losses.append(float(loss.value))
        for p in parameters:
            p.value = p.value - rate * p.grad
    return losses
