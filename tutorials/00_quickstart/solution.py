"""Install and first training. Fill in what raises Todo, then run: python -m tutorials check 0"""

import miniflow as flow
from miniflow import nn
from tutorials import Todo  # noqa: F401


def normalize(images):
    """Give each image mean 0 and standard deviation 1: (x - m) / (s + 1e-6)

    Args:
        images: a tensor of float32, (N, 1, height, width). It stays as it is.

    Returns:
        a new tensor of the same shape. m is the mean of an image, s the root of the mean of (x - m)^2 over its pixels.
    """
    # task 0.1: normalize each image
    centred = images - images.mean((1, 2, 3), keepdim=True)
    deviation = centred.square().mean((1, 2, 3), keepdim=True).sqrt()
    return centred / (deviation + 1e-6)
    # end


def count_parameters(model):
    """How many numbers training changes: those of all parameters that require a gradient, an int."""
    # task 0.2: count the parameters
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    # end


def training_step(model, optimizer, images, labels):
    """One step of the optimizer against the gradient of the cross-entropy of this batch alone.

    Args:
        model: takes images, returns logits (N, classes).
        optimizer: has `zero_grad()` and `step()`, and changes the parameters of the model.
        images: what the model takes.
        labels: (N,) of int64.

    Returns:
        the loss before the step, a float.
    """
    # task 0.3: one step of training
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
    # end


def confusion(model, images, labels):
    """How often an image of each class (row) gets each answer (column): a tensor (classes, classes) of int64.

    The answer is the class of the largest logit. The model is called once, on all images, and nothing is recorded.
    """
    # task 0.4: count right and wrong answers
    with flow.no_grad():
        logits = model(images)
    counts = flow.zeros(logits.shape[1], logits.shape[1], dtype=flow.int64)
    for label, answer in zip(labels.tolist(), logits.argmax(dim=1).tolist()):
        counts[label, answer] += 1
    return counts
    # end
