"""A generative adversarial network with convolutions."""

import torch
import torch.nn as nn
import torch.optim as optim
from common import initialise, numbers, report

netG = initialise(
    nn.Sequential(
        nn.ConvTranspose2d(6, 8, 3, 1, 0, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
)
netD = initialise(
    nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 3, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 1),
        nn.Sigmoid(),
        nn.Flatten(0),
    )
)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
real = torch.tanh(numbers(8, 1, 6, 6, seed=77))
for step in range(4):
    netD.zero_grad()
    label = torch.full((8,), 1.0, dtype=torch.float)
    errD_real = criterion(netD(real), label)
    errD_real.backward()
    fake = netG(numbers(8, 6, 1, 1, seed=step))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    errG.backward()
    optimizerG.step()
    report(errD_real + errD_fake, errG)
