"""Skip-gram with negative sampling."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, report

words = "we are about to study the idea of a computational process processes are abstract beings".split()
vocab = {word: i for i, word in enumerate(sorted(set(words)))}
ids = torch.LongTensor([vocab[w] for w in words])


class SkipGram(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.u_embeddings, self.v_embeddings = nn.Embedding(size, dim, sparse=False), nn.Embedding(size, dim)

    def forward(self, u, v, negatives):
        u, v, n = self.u_embeddings(u), self.v_embeddings(v), self.v_embeddings(negatives)
        score = F.logsigmoid(torch.sum(torch.mul(u, v), dim=1).squeeze())
        negative = F.logsigmoid(-torch.bmm(n, u.unsqueeze(2)).squeeze()).sum(1)
        return -(score + negative).mean()


model = initialise(SkipGram(len(vocab), 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
rng = np.random.default_rng(0)
for _ in range(5):
    negatives = torch.from_numpy(rng.integers(0, len(vocab), (len(words) - 1, 3)))
    loss = model(ids[:-1], ids[1:], negatives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
similar = torch.nn.functional.cosine_similarity(model.u_embeddings.weight[:1], model.u_embeddings.weight)
report(*similar.topk(3).values)
