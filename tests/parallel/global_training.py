"""A small transformer and a small CNN, and the layouts in which they are trained."""

import numpy as np

import miniflow as flow
from miniflow import nn

S, B = flow.sbp.split, flow.sbp.broadcast


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = flow.softmax(q @ k.mT / (d // self.heads) ** 0.5, -1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, words=20, width=16):
        super().__init__()
        self.embedding, self.block = nn.Embedding(words, width), Block(width, 4)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.norm(self.block(self.embedding(tokens)))).reshape(-1, 20)

    @staticmethod
    def batch(step):
        random = np.random.default_rng(step)
        return flow.tensor(random.integers(0, 20, (8, 6))), flow.tensor(random.integers(0, 20, 48))


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
        )  # fmt: skip
        self.up, self.down = nn.Linear(8 * 4 * 4, 16), nn.Linear(16, 10)

    def forward(self, x):
        return self.down(self.up(self.net(x)).relu())

    @staticmethod
    def batch(step):
        random = np.random.default_rng(step)
        images = random.normal(size=(8, 1, 16, 16)).astype(np.float32)
        return flow.tensor(images), flow.tensor(random.integers(0, 10, 8))


class Layout:
    """Where a model and its batches lie: on a mesh of data parallel ranks by tensor parallel ones."""

    def __init__(self, data, tensor):
        self.name = f"{data}x{tensor}"
        self.mesh = flow.placement("cpu", np.arange(data * tensor).reshape(data, tensor))

    def place(self, model):
        """Split the first of two layers by its outputs, the second by its inputs."""
        model.to_global(self.mesh, (B, B))
        for name, p in model.named_parameters():
            if name.endswith(("up.weight", "up.bias", "qkv.weight", "qkv.bias")):
                p.data = p.data.to_global(sbp=(B, S(0)))
            if name.endswith(("down.weight", "out.weight")):
                p.data = p.data.to_global(sbp=(B, S(1)))

    def batch(self, tensors):
        return [x.to_global(self.mesh, (B, B)).to_global(sbp=(S(0), B)) for x in tensors]


class Step(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def train(make, layout=None, steps=20, graph=False):
    """Losses, the final state as arrays, and the bytes that each step sent."""
    flow.manual_seed(0)
    model = make()
    if layout is not None:
        layout.place(model)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = Step(model, optimizer) if graph else None
    flow.manual_seed(1)
    losses, sent = [], []
    for number in range(steps):
        batch = make.batch(number) if layout is None else layout.batch(make.batch(number))
        before = sum(flow.parallel.stats().values())
        if graph:
            loss = step(*batch)
        else:
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        sent.append(sum(flow.parallel.stats().values()) - before)
        losses.append(loss.item())
    return losses, {name: value.numpy() for name, value in model.state_dict().items()}, sent, model
