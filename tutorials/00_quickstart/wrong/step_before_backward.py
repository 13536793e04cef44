"""Takes the step before the gradients are computed, and clears them afterwards: nothing is ever learned.

rejected by: test_training_step
message: step() comes after it
"""


def training_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.step()
    loss.backward()
    return loss.item()
