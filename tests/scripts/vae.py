"""A variational autoencoder."""

import torch
import torch.utils.data
from common import initialise, numbers, report
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(20, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.fc3, self.fc4 = nn.Linear(4, 16), nn.Linear(16, 20)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 20))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 20), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


model = initialise(VAE()).to(torch.device("cuda" if torch.cuda.is_available() and False else "cpu"))
optimizer = optim.Adam(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.sigmoid(numbers(32, 4, 5, seed=98)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=False)
for epoch in range(2):
    train_loss = 0
    for batch_idx, (data,) in enumerate(loader):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, numbers(8, 4, seed=batch_idx))
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    report(train_loss / len(loader.dataset))
prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
posterior = torch.distributions.Normal(mu, (0.5 * logvar).exp())
report(torch.distributions.kl_divergence(posterior, prior).sum())
