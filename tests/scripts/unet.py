"""A U-Net for segmentation with a Dice loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, numbers, report


class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(
            nn.Conv2d(a, b, 3, padding=1, bias=False),
            nn.GroupNorm(2, b),
            nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1, bias=False),
            nn.GroupNorm(2, b),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, a, b, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(a, a // 2, 1)
            )
        else:
            self.up = nn.ConvTranspose2d(a, a // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(a, b)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down1 = DoubleConv(1, 4), nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(8, 16))
        self.up1, self.up2, self.outc = Up(16, 8, True), Up(8, 4, False), nn.Conv2d(4, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        return self.outc(self.up2(self.up1(self.down2(x2), x2), x1))


def dice(p, t, eps=1.0):
    p, t = torch.sigmoid(p).flatten(1), t.flatten(1)
    return 1 - ((2 * (p * t).sum(1) + eps) / (p.sum(1) + t.sum(1) + eps)).mean()


model = initialise(UNet(), 0.5)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
x = numbers(2, 1, 18, 18, seed=60)
mask = (x > 0.3).float()
for _ in range(4):
    out = model(x)
    loss = F.binary_cross_entropy_with_logits(out, mask) + dice(out, mask)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
    optimizer.step()
    report(loss)
small = F.interpolate(model(x).detach(), size=(7, 9), mode="bilinear", align_corners=False)
report(small.mean(), F.interpolate(small, scale_factor=2.0, mode="nearest").std())
