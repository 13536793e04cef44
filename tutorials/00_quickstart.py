# %% [markdown]
# # Quickstart
#
# Tensors, the tape that computes gradients, a first network, training it on handwritten digits, and keeping the
# result. Everything runs on a CPU, offline. Exercises stand where they arise: try each before you open the cell that
# follows.
#
# miniflow follows the names of OneFlow and PyTorch; what you learn here carries over.

# %%
import tempfile
from pathlib import Path

import miniflow as flow
from miniflow import nn

_ = flow.manual_seed(0)  # random numbers from here on are the same in every run

# %% [markdown]
# ## Tensors
#
# A tensor is an array with a shape and an element type.

# %%
x = flow.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
print(x)
print(x.shape, x.dtype, x.device)

# %% [markdown]
# Arithmetic works element by element. Shapes that differ are *broadcast*: a dimension of size 1, or a missing one in
# front, is repeated. `@` is the matrix product.

# %%
print(x * 10 + flow.tensor([0.1, 0.2, 0.3]))
print(x @ x.T)

# %% [markdown]
# Slices, transposes and reshapes are *views*: they share memory with the tensor they came from, so writing through
# one is seen by the other. `clone()` makes a copy.

# %%
first_column = x[:, 0]
first_column += 100
print(x)

# %% [markdown]
# **Exercise 1.** Without a loop: subtract from every row of `x` its mean, giving `centred`, whose rows have mean
# zero.

# %%
# Solution
centred = x - x.mean(dim=1, keepdim=True)

# %%
assert centred.shape == (2, 3)
assert centred.mean(dim=1).abs().max() < 1e-5

# %% [markdown]
# ## The tape
#
# A tensor that `requires_grad` is a *leaf*. Every operation on it is recorded on the tape, together with what is
# needed to differentiate it. `backward()` walks the tape from the newest operation to the oldest, applying the chain
# rule, and adds the result to `.grad` of the leaves.

# %%
a = flow.tensor(2.0, requires_grad=True)
b = flow.tensor(3.0, requires_grad=True)
y = (a * b + a).exp()
print(y.grad_fn)

# %% [markdown]
# The tape of `y` as a picture. Green boxes are leaves. The numbers are the order in which `backward()` visits the
# operations.

# %%
figure = flow.show.tape(y, {"a": a, "b": b})

# %%
y.backward()
print("dy/da =", a.grad.item(), "  by hand:", ((b + 1) * y).item())
print("dy/db =", b.grad.item(), "  by hand:", (a * y).item())

# %% [markdown]
# **Exercise 2.** Find the minimum of $f(t) = t^4 - 3 t^3 + 2$ by gradient descent: start at $t = 4$, and 100 times
# take a step of size 0.01 against the gradient. Gradients add up in `.grad`, so it has to be cleared before each
# `backward()`; and the step itself must not be recorded, which `flow.no_grad()` is for. (The minimum is at $t =
# 9/4$.)

# %%
# Solution
t = flow.tensor(4.0, requires_grad=True)
for _ in range(100):
    t.grad = None
    f = t**4 - 3 * t**3 + 2
    f.backward()
    with flow.no_grad():
        t -= 0.01 * t.grad

# %%
assert abs(t.item() - 9 / 4) < 1e-3
print(t.item())

# %% [markdown]
# ## A first network
#
# An `nn.Module` holds parameters and says how to compute with them. This one is a *multilayer perceptron*: it maps an
# image of 28 by 28 pixels to ten numbers, the *logits*, one for each digit.

# %%
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
print(model)
print(sum(parameter.numel() for parameter in model.parameters()), "parameters")

# %% [markdown]
# The digits come with miniflow: 4,000 to train on, 1,000 to test on.

# %%
train_digits, test_digits = flow.data.mnist("train"), flow.data.mnist("test")
images, labels = test_digits.tensors
print(images.shape, labels.shape)

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 10, figsize=(8, 1.2))
for image, label, ax in zip(images, labels, axes, strict=False):
    ax.imshow(image[0].numpy(), cmap="gray_r")
    ax.set_title(label.item())
    ax.set_axis_off()

# %% [markdown]
# The *cross-entropy* says how badly the logits fit the labels. Untrained, the network guesses, and the loss is near
# $\log 10 = 2.30$. On the tape of the loss are the operations of all layers; its leaves are the parameters.

# %%
loss = nn.functional.cross_entropy(model(images), labels)
print("loss before training:", round(loss.item(), 2))
figure = flow.show.tape(loss, dict(model.named_parameters()))

# %% [markdown]
# ## Training
#
# The loop that every framework of this kind shares: take a batch, compute the loss, clear the gradients, compute them
# again, let the optimizer change the parameters.


# %%
def train(model, epochs, learning_rate):
    """Returns the loss of every step, and the test loss after every epoch."""
    loader = flow.utils.data.DataLoader(train_digits, batch_size=64, shuffle=True)
    optimizer = flow.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    steps, tests = [], []
    for _ in range(epochs):
        for batch, targets in loader:
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        with flow.no_grad():
            tests.append(nn.functional.cross_entropy(model(images), labels).item())
    return steps, tests


def accuracy(model):
    """The fraction of test digits for which the largest logit is the right one."""
    with flow.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


steps, tests = train(model, epochs=4, learning_rate=0.05)
print(f"test accuracy {accuracy(model):.1%}")
assert accuracy(model) > 0.9

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
flow.show.losses(steps, tests, axes=left)
with flow.no_grad():
    _ = flow.show.confusion(model(images).argmax(dim=1), labels, axes=right)

# %% [markdown]
# The training loss keeps falling while the test loss levels off: the network begins to know its training digits by
# heart.
#
# **Exercise 3.** A *convolutional* network looks at small neighbourhoods with the same weights everywhere, and so
# needs fewer examples to see more. Build one as `network` and reach a test accuracy above 94 % in three epochs: twice
# a 5x5 convolution with padding 2, ReLU and 2x2 max pooling, with 8 channels the first time and 16 the second; then
# flatten, and one linear layer. Its input size is for you to work out: what shape leaves the second pooling?

# %%
# Solution
network = nn.Sequential(
    nn.Conv2d(1, 8, kernel_size=5, padding=2),  # (N, 8, 28, 28)
    nn.ReLU(),
    nn.MaxPool2d(2),  # (N, 8, 14, 14)
    nn.Conv2d(8, 16, kernel_size=5, padding=2),
    nn.ReLU(),
    nn.MaxPool2d(2),  # (N, 16, 7, 7)
    nn.Flatten(),
    nn.Linear(16 * 7 * 7, 10),
)
_ = train(network, epochs=3, learning_rate=0.02)

# %%
print(f"test accuracy {accuracy(network):.1%}")
assert accuracy(network) > 0.94

# %% [markdown]
# ## Saving and loading
#
# `state_dict()` is everything that a module has learned, by name. `flow.save` writes it as a safetensors file, a
# plain format without code in it, which other frameworks read too.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.safetensors"
    flow.save(model.state_dict(), path)
    print(path.stat().st_size, "bytes")

    copy = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    print(f"before loading: {accuracy(copy):.1%}")
    copy.load_state_dict(flow.load(path))
    print(f"after loading:  {accuracy(copy):.1%}")

assert accuracy(copy) == accuracy(model)

# %% [markdown]
# From here: `python -m miniflow` trains LeNet on the same digits, and `miniflow/__main__.py` is its source. To see
# how a gradient is computed, open `miniflow/ops/matmul.py`: an operation's shape rule and its gradient stand
# together.
