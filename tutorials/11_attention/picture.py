"""The picture of lesson 11: the loss, and the attention of the trained model."""

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow

LINE, STEPS = "Shall I compare thee to a summer's day?", 200


@flow.no_grad()
def weights_of(impl, model, tokens):
    """The weights of the first head: a row for each query, a column for each key."""
    x = model.letter(flow.tensor([tokens])) + model.place(flow.arange(len(tokens)))
    q, k, _ = (part.numpy()[0, 0] for part in model.block.project(x))
    return impl.attention(q, k, np.eye(len(tokens), dtype=np.float32), causal=True)[0]


def draw(impl):
    """Left: the loss. Right: the weights of the letters before, for each letter of a line."""
    text = impl.SONNETS.read_text()
    letters = sorted(set(text))
    flow.manual_seed(0)
    model = impl.Model(len(letters), context=48)
    losses = impl.train(model, np.array([letters.index(x) for x in text]), STEPS, length=48)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    left.plot(losses, color="#3d85c6")
    left.axhline(np.log(len(letters)), color="gray", linestyle="--")
    left.text(STEPS, np.log(len(letters)) - 0.03, "uniform guess", ha="right", va="top", color="gray")
    left.set(title=f"loss: {np.mean(losses[-20:]):.2f}, mean of the last 20 steps", xlabel="step")
    right.imshow(weights_of(impl, model, [letters.index(x) for x in LINE]) ** 0.5, cmap="Blues")
    right.set_xticks(range(len(LINE)), LINE, fontsize=8)
    right.set_yticks(range(len(LINE)), LINE, fontsize=8)
    right.set(title="weights of the first head", xlabel="letter of the key", ylabel="letter of the query")
    return figure
