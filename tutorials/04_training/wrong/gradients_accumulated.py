"""The gradients of earlier batches are not forgotten.

rejected by: test_each_step
message: with the gradient of this batch alone
"""


def train(model, loss_of, optimizer, batches, epochs):
    losses = []
    for _ in range(epochs):
        for inputs, targets in batches:
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
