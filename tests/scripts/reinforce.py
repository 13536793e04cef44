"""REINFORCE on a walk along a line; actions come from a table, so that both libraries take the same."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from common import initialise, report
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.dropout, self.affine2 = nn.Linear(2, 8), nn.Dropout(p=0.0), nn.Linear(8, 2)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=1)


policy = initialise(Policy())
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()
random = np.random.default_rng(0)
for episode in range(4):
    place = 0.0
    for t in range(6):
        state = torch.from_numpy(np.array([place, t / 6], dtype=np.float32)).unsqueeze(0)
        m = Categorical(policy(state))
        assert int(m.sample().item()) in (0, 1)
        action = torch.tensor([int(random.integers(0, 2))])
        policy.saved_log_probs.append(m.log_prob(action))
        place += 1.0 if action.item() == 1 else -1.0
        policy.rewards.append(place)
    R, returns = 0, []
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    loss = torch.cat([-log_prob * R for log_prob, R in zip(policy.saved_log_probs, returns)]).sum()
    entropy = m.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss, entropy)
    del policy.rewards[:], policy.saved_log_probs[:]
