"""The picture of lesson 10: how your training goes, and the held-out digits that the network gets wrong."""

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow

EPOCHS, BATCH, PEAK, SHIFT, HELD_OUT = 5, 64, 0.05, 2, 1000
USE_TEST = False  # set it to True once, when you have chosen everything else


def data_sets(impl):
    """Training digits, which are shifted, and held-out digits."""
    train, test = ([x.numpy() for x in flow.data.mnist(s, normalize=False).tensors] for s in ("train", "test"))
    train, held_out = impl.split(*train, HELD_OUT, 0, impl.RandomShift(SHIFT, 0))
    return train, impl.Digits(*test) if USE_TEST else held_out


def fit(impl, model, train, held_out):
    """The training loss, the held-out loss and the held-out accuracy of each epoch, (EPOCHS, 3)."""
    optimizer, history = flow.optim.SGD(model.parameters(), lr=PEAK, momentum=0.9), []
    loader, count = impl.Loader(train, impl.Shuffle(len(train), 0), BATCH), -(-len(train) // BATCH)
    for epoch in range(EPOCHS):
        rate_of = lambda k: impl.learning_rate(k, EPOCHS * count, count, PEAK)  # noqa: E731
        loss = impl.train_epoch(model, loader, optimizer, rate_of, epoch * count)
        history.append((loss, *impl.evaluate(model, impl.Loader(held_out, range(len(held_out)), BATCH))))
    return np.array(history)


def draw(impl):
    """Losses on the left; on the right the digits with the wrong answers, the surest of them first."""
    flow.manual_seed(0)
    model, (train, held_out) = impl.network(), data_sets(impl)
    history = fit(impl, model, train, held_out)
    with flow.no_grad():
        shares = model.eval()(flow.tensor(held_out.images)).softmax(1).numpy()
    answers = shares.argmax(1)
    surest = np.argsort(-shares.max(1))
    wrong = surest[answers[surest] != held_out.labels[surest]]

    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axis, epochs, name = left.subplots(), np.arange(1, EPOCHS + 1), "test" if USE_TEST else "held-out"
    axis.semilogy(epochs, history[:, :2], "o-", label=["training, shifted images", name])
    axis.set(xlabel="epoch", ylabel="mean cross-entropy", xticks=epochs)
    axis.set_title(f"{len(held_out):,} {name} digits: {history[-1, 2]:.1%} right")
    axis.legend()
    right.suptitle("wrong answers, the surest first: label, answer")
    for axis, k in zip(right.subplots(3, 5, subplot_kw={"xticks": [], "yticks": []}).flat, wrong):
        axis.imshow(held_out.images[k, 0], cmap="gray_r")
        axis.set_title(f"{held_out.labels[k]}, {answers[k]}", fontsize=10)
    return figure
