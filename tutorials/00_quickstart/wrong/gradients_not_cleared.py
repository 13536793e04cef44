"""The gradients of earlier batches are added to those of this one.

rejected by: test_training_step
message: old gradients are cleared before backward()
"""


def training_step(model, optimizer, images, labels):
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
