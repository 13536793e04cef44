"""Adds with an index, which counts equal pairs once.

rejected by: test_confusion_matrix
message: a pair that comes n times counts n times
"""


def confusion_matrix(labels, answers, classes):
    matrix = np.zeros((classes, classes), np.int64)
    matrix[labels, answers] += 1
    return matrix
