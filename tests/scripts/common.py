"""What the scripts share: initial values and data that do not depend on the library's random numbers."""

import numpy as np
import torch


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@torch.no_grad()
def initialise(model, scale=0.2):
    for i, p in enumerate(model.parameters()):
        p.copy_(scale * numbers(*p.shape, seed=i))
    return model


def report(*losses):
    print(" ".join(f"{float(x):.6f}" for x in losses))
