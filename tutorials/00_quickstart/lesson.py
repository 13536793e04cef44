# %% [markdown]
# # Install and first training
#
# After this lesson miniflow runs on your machine, you know how the lessons are checked, and a network that you trained
# reads handwritten digits. Time: 30 minutes. You need Python and the first steps of PyTorch: miniflow has its names.
#
# ## Install
#
# With Python 3.10 or newer, in a clone of the repository:
#
#     pip install -e ".[notebooks]"
#     python -m tutorials list
#
# Everything runs on a CPU and without a network. The first call of an operator compiles it, which takes some seconds;
# the result is kept for later runs.
#
# ## How a lesson works
#
# Type `jupyter lab`, and open `notebooks/00_quickstart.ipynb`; VS Code and Colab open it as well. Cells that begin with
# `%%task` are for you to fill in: put your code in the place of `raise Todo(...)`, and run the cell. The docstring says
# what comes in and what goes out. The cell writes to your file of the lesson, `tutorials/00_quickstart/student.py`, and
# checks the task, with other random inputs in each run: passed, wrong and why, not started, or error. Cells that need a
# task which you have not written yet say so; run them again afterwards.
#
# You can also edit the file yourself, and check it in a terminal, in the folder of the clone:
#
#     python -m tutorials start 0     # writes tutorials/00_quickstart/student.py, if it is not there
#     python -m tutorials check 0     # one line for each task
#     python -m tutorials check 0.1   # only this one
#     python -m tutorials show 0      # prints the solution: try for ten minutes first

# %%
import miniflow as flow
from miniflow import nn
from tutorials import check, implementation

impl = implementation(0)
_ = flow.manual_seed(0)  # random numbers from here on are the same in every run

# %% [markdown]
# ## Tensors
#
# A tensor has a shape, an element type and a device. The digits come with miniflow: 4,000 to train on, and 1,000 *held
# out*, which tell how well the network does on images that it has not seen. A batch of images is a tensor of shape (N,
# channels, height, width).

# %%
train_digits = flow.data.mnist("train", normalize=False)
images, labels = flow.data.mnist("test", normalize=False).tensors
print(images.shape, images.dtype, images.device)
print(labels[:10])

# %% [markdown]
# Networks learn faster from inputs whose mean is near 0 and whose standard deviation is near 1. Arithmetic works
# element by element, and a dimension of size 1 is repeated where the other tensor has more: that is *broadcasting*.
#
# **Task 0.1.** `normalize(images)` does this for each image by itself. Take means over the dimensions (1, 2, 3) with
# `keepdim=True`, so that the result has shape (N, 1, 1, 1) and broadcasts. The 1e-6 in the formula matters for an image
# of one color: it becomes 0, not NaN.

# %%
images = impl.normalize(images)
for number in range(3):
    print(f"label {labels[number].item()}, mean {abs(images[number].mean().item()):.2f}")

# %% [markdown]
# ## Gradients
#
# A tensor that `requires_grad` is a *leaf*. Every operation on it is recorded on the *tape*. `backward()` walks the
# tape from the newest operation to the oldest, and adds the gradients to `.grad` of the leaves. The picture is the tape
# of `y`: leaves are green, and the numbers are the order in which `backward()` visits the operations.

# %%
a, b = flow.tensor(2.0, requires_grad=True), flow.tensor(3.0, requires_grad=True)
y = a * b + a
y.backward()
print("dy/da =", a.grad.item(), "  by hand:", b.item() + 1)
figure = flow.show.tape(a * b + a, {"a": a, "b": b})

# %% [markdown]
# ## A network
#
# An `nn.Module` holds parameters and says how to compute with them. This one maps an image to ten numbers, the
# *logits*, one for each digit. The largest is the answer.
#
# **Task 0.2.** `count_parameters(model)` adds up `numel()` over `model.parameters()`. Parameters that do not require a
# gradient are *frozen*, and do not count.


# %%
def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


model = network()
print(model)
print(impl.count_parameters(model), "parameters;  by hand:", 784 * 64 + 64 + 64 * 10 + 10)

# %% [markdown]
# ## Training
#
# A `DataLoader` goes through a data set in batches, in another order in each epoch. The *cross-entropy* says how badly
# the logits fit the labels: near log 10 = 2.30 for a network that guesses, 0 if it is sure and right.
#
# **Task 0.3.** `training_step` computes the loss with `nn.functional.cross_entropy`, clears old gradients, computes the
# new ones and lets the optimizer change the parameters. `item()` makes a number of a tensor with one element.

# %%
pairs = flow.utils.data.TensorDataset(impl.normalize(train_digits.tensors[0]), train_digits.tensors[1])
loader = flow.utils.data.DataLoader(pairs, batch_size=64, shuffle=True)
optimizer = flow.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
losses = [impl.training_step(model, optimizer, *batch) for batch in loader]
print(f"first loss {losses[0]:.1f}, mean of the last ten {sum(losses[-10:]) / 10:.1f}")

# %% [markdown]
# **Task 0.4.** `confusion(model, images, labels)` counts the answers of a model: row = label, column = answer. Use
# `argmax`, and call the model within `flow.no_grad()`. Right answers are on the diagonal, so the accuracy is the sum of
# the diagonal divided by the sum of all.

# %%
counts = impl.confusion(model, images, labels)
print(f"accuracy after one epoch: {counts.diagonal().sum().item() / counts.sum().item():.1%}")

# %% [markdown]
# ## The same step as a graph
#
# An `nn.Graph` records `build` in its first call, and replays the optimized record in later calls with the same shapes.
# With `add_optimizer`, a call clears the gradients and takes the step too. The losses are those of eager mode.


# %%
class Step(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, images, labels):
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss


eager, copy = network(), network()
copy.load_state_dict(eager.state_dict())
step = Step(copy, flow.optim.SGD(copy.parameters(), lr=0.02, momentum=0.9))
optimizer = flow.optim.SGD(eager.parameters(), lr=0.02, momentum=0.9)
for _, batch in zip(range(5), loader):
    print(f"eager {impl.training_step(eager, optimizer, *batch):.3f}   graph {step(*batch).item():.3f}")

# %% [markdown]
# `state_dict()` is what a module has learned, by name; `flow.save(model.state_dict(), "digits.safetensors")` keeps it,
# and `flow.load` reads it again.
#
# When all tasks pass, the check trains a network for three epochs with your functions. It draws the loss of each step,
# and the confusion matrix.

# %%
passed = check(0)

# %% [markdown]
# The number to beat is the accuracy after one epoch, in the title on the right. In
# `tutorials/00_quickstart/picture.py`, try smaller batches, other learning rates, or more hidden units.
#
# ## In miniflow's source
#
# `miniflow/__main__.py` is a longer training program; `python -m miniflow` runs it. `miniflow/tensor.py` is the tensor,
# `miniflow/nn/modules/module.py` the module, `miniflow/utils/data/mnist.py` the digits. Lesson 2 builds the tape,
# lesson 4 modules, losses and optimizers, lesson 10 the loader, and lesson 12 a recorder.
#
# Further reading: LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition",
# which has these digits; Paszke et al. 2019, "PyTorch: an imperative style, high-performance deep learning library".
