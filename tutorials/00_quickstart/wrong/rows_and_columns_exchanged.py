"""Rows are answers and columns are labels.

rejected by: test_confusion
message: the row is the label
"""


def confusion(model, images, labels):
    with flow.no_grad():
        logits = model(images)
    counts = flow.zeros(logits.shape[1], logits.shape[1], dtype=flow.int64)
    for label, answer in zip(labels.tolist(), logits.argmax(dim=1).tolist()):
        counts[answer, label] += 1
    return counts
