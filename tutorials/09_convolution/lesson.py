# %% [markdown]
# # Convolution and pooling, with their gradients
#
# After this lesson you have written a convolution in two ways, its three gradients, and max pooling with its gradient,
# and you know what the fast way costs in memory. Time: 60 minutes. You need NumPy with views and strides (lesson 1),
# and what a gradient is (lesson 2). It builds on the views of lesson 1 and the rules of lesson 2. The last lesson puts
# your code of this one into a framework of your own.
#
# Solve the tasks in the notebook, `notebooks/09_convolution.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/09_convolution/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 9` makes; `python -m tutorials check 9` checks all of it.

# %%
import numpy as np

from tutorials import check, implementation

impl = implementation(9)

# %% [markdown]
# ## Where the kernel stands
#
# A batch of images has shape (N, C, H, W): images, channels, rows, columns. A *kernel* of KH x KW weights slides over
# each image. At each place it is multiplied with what it covers, and the products are added up: that is one output.
# From one output to the next it moves by `stride` elements. `padding` rows and columns of zeros on each side let it
# begin before the edge. A convolution has O kernels, each with weights for all C channels:
#
# $$y_{n,o,r,s} = b_o + \sum_{c,i,j} w_{o,c,i,j}\; x_{n,\,c,\;\text{stride} \cdot r + i,\;\text{stride} \cdot s + j},$$
#
# where x is padded already. (In signal processing the kernel is flipped first, and this is called cross-correlation.)
# Stride and padding are ints here, the same for rows and columns; the two sizes of a kernel may differ.
#
# **Task 9.1.** `output_shape((H, W), (KH, KW), stride, padding)` gives (OH, OW): at how many places the kernel lies
# within the padded image. If the stride does not divide evenly, the last rows or columns of the image are not used.
#
# The formula has seven indices. Do not write seven loops: hold the kernel element (i, j) fixed, and look at all outputs
# at once. What they need of x is a regular grid: a slice with a step. `window(x, i, j, shape, stride)` gives this view
# of shape (N, C, OH, OW). Here `x` is padded already, and `shape` is (OH, OW).

# %%
x = np.arange(30.0).reshape(1, 1, 5, 6)
print(x[0, 0])
print("places:", impl.output_shape((5, 6), (3, 2), 2, 0))
print(impl.window(x, 2, 1, (2, 3), 2)[0, 0])

# %% [markdown]
# These are the elements that the last weight of a 3 x 2 kernel meets, one for each of the 2 x 3 outputs.
#
# ## Direct convolution
#
# **Task 9.2.** `conv2d(x, weight, bias, stride, padding)`. Pad x with the given `padded`. Loop over the elements (i, j)
# of the kernel. For each of them, add the product of the weights `weight[:, :, i, j]`, of shape (O, C), and the window:
# a sum over the channels, for which `np.einsum` is made. The result has the dtype of x. The check measures memory, so
# do not copy all windows into one array.

# %%
edges = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32).reshape(1, 1, 3, 3)
step = np.zeros((1, 1, 4, 8), np.float32)
step[..., 4:] = 1
print(step[0, 0])
print(impl.conv2d(step, edges, np.zeros(1, np.float32), 1, 1)[0, 0])

# %% [markdown]
# This kernel, named after Sobel, finds vertical edges. The output is 4 where the image becomes brighter, 3 in the first
# and last row, where part of the kernel lies on zeros, and negative at the right edge, where the padding begins.
#
# ## Convolution as a matrix product
#
# Processors multiply matrices fast. So copy what the kernel meets into the columns of a matrix, one column for each
# output. This is called *unfold*, or *im2col*. The convolution of an image is then the product of two matrices,
#
# $$Y = W U + b,\qquad W: (O,\; C \cdot KH \cdot KW),\qquad U: (C \cdot KH \cdot KW,\; OH \cdot OW).$$
#
# **Task 9.3.** `unfold(x, kernel, stride, padding)` makes U for each image. The rows of U are in row-major order of
# (c, i, j), as in the weights, and its columns in that of (r, s). Then write `conv2d_unfold` with one call of `unfold`.
# The price is memory. `unfold_bytes(shape, kernel, stride, padding, itemsize)` predicts the bytes of the result of
# `unfold` for x of `shape`. `flatten`, which is given, makes a matrix of the weights.

# %%
shape = (8, 16, 56, 56)
before, after = 4 * np.prod(shape), impl.unfold_bytes(shape, (3, 3), 1, 1, 4)
print(f"x: {before / 1e6:.1f} MB, unfolded: {after / 1e6:.1f} MB, {after / before:.0f} times as much")

# %% [markdown]
# ## The gradient for the input
#
# If G is the gradient of $Y = W U$, that of U is $W^T G$. But U is a copy of x, in which an element of x may stand
# several times, or not at all. Its gradient is the sum over all places where it stands. This is called *fold*, or
# *col2im*: the same loop as in `unfold`, but it adds where `unfold` reads.
#
# **Task 9.4.** `fold(columns, shape, kernel, stride, padding)` adds up columns, of the shape that `unfold` returns, to
# an array of `shape` = (N, C, H, W). Begin with zeros for the padded image; cut the padding off at the end. Then
# `input_gradient(gradient, weight, shape, stride, padding)` is short. It is also what frameworks call a transposed
# convolution.

# %%
ones = np.ones((1, 9, 9))
print(impl.fold(ones, (1, 1, 5, 5), (3, 3), 1, 0)[0, 0])

# %% [markdown]
# So often is each element of a 5 x 5 image used by a 3 x 3 kernel.
#
# **Task 9.5.** `parameter_gradients(gradient, x, kernel, stride, padding)` returns the pair of gradients for weight and
# bias. For one image, the gradient of W is $G U^T$. All images have the same weights, so the gradients of all images
# are added up, not averaged. Each b is added to all outputs of its o.

# %%
rng = np.random.default_rng(0)
x, gradient = rng.standard_normal((2, 3, 7, 8)), rng.standard_normal((2, 4, 3, 4))
weight, bias = impl.parameter_gradients(gradient, x, (3, 2), 2, 0)
print(weight.shape, bias.shape)

# %% [markdown]
# ## Max pooling
#
# `max_pool2d(x, kernel, stride)` takes the largest element of each window, in each channel for itself. Its gradient
# goes to this element alone. So the forward pass also returns *positions*: where in its plane of x, counted in
# row-major order, each largest element is.
#
# **Task 9.6.** Write `max_pool2d`, without padding, and `max_pool2d_gradient(gradient, positions, shape)`. Of equal
# elements take the first in row-major order, as `argmax` does. Positions are int64. If windows overlap, one element can
# be the largest of several of them, and gets the sum of their gradients. Note that `a[positions] += g` adds only once
# for equal positions; `np.add.at` adds all.

# %%
x = np.array([[1, 7, 2, 2], [0, 3, 2, 2], [5, 5, 4, 9]], np.float64).reshape(1, 1, 3, 4)
y, positions = impl.max_pool2d(x, (2, 2), 1)
print(y[0, 0], positions[0, 0], sep="\n")
print(impl.max_pool2d_gradient(np.ones_like(y), positions, x.shape)[0, 0])

# %% [markdown]
# The 7 is the largest of two windows, and its gradient is 2.
#
# When all tasks pass, the check draws a digit, its vertical edges, how the digit would have to change for stronger
# edges, and the pooled edges; all by your functions. Below are the bytes that both ways of convolution need.

# %%
passed = check(9)

# %% [markdown]
# The number to beat is the peak memory of `conv2d` for kernels of 7 x 7, in the title. Where does it come from? Count
# the arrays that exist at the same time: the padded x, the result, and what a line makes for a moment. Then get rid of
# one of them: add the bias in place, cut the slices at the edges in place of padding, or add to the result image by
# image.
#
# ## In miniflow's source
#
# `miniflow/ops/convolution.py` has the operator and its gradients, which are operators too, and fold;
# `miniflow/ops/pooling.py` has pooling. `kernels/ladders/convolution.py` goes from the direct convolution to
# the one of the library, `kernels/conv.py`: it computes the elements of U when they are needed, and never
# stores them all (*implicit GEMM*).
#
# Further reading: LeCun et al. 1998, "Gradient-based learning applied to document recognition"; Chellapilla, Puri and
# Simard 2006, "High performance convolutional neural networks for document processing", on unfolding; Dumoulin and
# Visin 2016, "A guide to convolution arithmetic for deep learning"; Chetlur et al. 2014, "cuDNN: efficient primitives
# for deep learning", on implicit GEMM.
