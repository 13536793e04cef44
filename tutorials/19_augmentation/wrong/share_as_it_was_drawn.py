"""Mixes the targets by the share that was drawn, also where half of the box is outside of the image.

rejected by: test_cutmix
message: a box at the border is smaller than 1 - share says
"""


def cutmix(images, targets, order, share, y, x):
    top, left, bottom, right = cut_box(*images.shape[2:], share, y, x)
    mixed = images.copy()
    mixed[:, :, top:bottom, left:right] = images[order][:, :, top:bottom, left:right]
    share = np.float32(share)
    return mixed, share * targets + (1 - share) * targets[order]
