"""Never forgets gradients: those of all steps add up.

rejected by: test_training
message: step k has rate_of(k); forget gradients
"""


def train_epoch(model, optimizer, loader, rate_of, first):
    losses = []
    for step, (images, labels) in enumerate(loader, start=first):
        loss = cross_entropy(model(Variable(images.numpy())), labels.numpy())
        mine.autograd.backward(loss)
        optimizer.step(rate_of(step))
        losses.append(float(loss.value))
    return losses
