"""The model is called with gradients: the tape keeps every intermediate result of 1,000 images.

rejected by: test_confusion
message: one call, within no_grad
"""


def confusion(model, images, labels):
    answers = model(images).argmax(dim=1)
    counts = flow.zeros(model(images).shape[1], model(images).shape[1], dtype=flow.int64)
    for label, answer in zip(labels.tolist(), answers.tolist()):
        counts[label, answer] += 1
    return counts
