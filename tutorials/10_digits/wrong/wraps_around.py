"""What moves out on one side comes in on the other.

rejected by: test_shifted
message: zeros come in at the border
"""


def shifted(image, down, right):
    return np.roll(image, (down, right), axis=(1, 2))
