"""A character-level LSTM that learns a line by heart."""

import torch
from common import initialise, report
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog. "
letters = sorted(set(TEXT))
codes = torch.tensor([letters.index(c) for c in TEXT], dtype=torch.long)


class CharRNN(nn.Module):
    def __init__(self, vocabulary, hidden=16, layers=2):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=layers, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, x, state=None):
        y, state = self.lstm(self.embedding(x), state)
        return self.head(y), state


model = initialise(CharRNN(len(letters)))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
x, y = codes[:-1].view(4, 11), codes[1:].view(4, 11)
state = None
for step in range(6):
    logits, state = model(x, state)
    state = tuple(s.detach() for s in state)
    loss = criterion(logits.view(-1, len(letters)), y.reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    report(loss)
