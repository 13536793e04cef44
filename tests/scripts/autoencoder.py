"""A convolutional autoencoder."""

import torch
import torch.nn as nn
from common import initialise, numbers, report


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(True),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(True),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 2, stride=2), nn.ReLU(True), nn.ConvTranspose2d(8, 1, 2, stride=2), nn.Sigmoid()
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


model = initialise(Autoencoder())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
images = torch.sigmoid(numbers(16, 1, 12, 12, seed=99))
for _ in range(5):
    loss = nn.functional.mse_loss(model(images), images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
