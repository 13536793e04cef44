# %% [markdown]
# # Attention: a character model, and its kernel
#
# After this lesson you have written attention with its gradient, a kernel that computes it without a matrix of all
# scores, and a small transformer that is trained on sonnets and writes text. Time: 60 minutes. You need softmax and
# matrix products, kernels with shared memory and barriers (lesson 6), and modules (lesson 4). It builds on the
# cross-entropy of lesson 4, and on the reads that lesson 6 counts.
#
# Solve the tasks in the notebook, `notebooks/11_attention.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/11_attention/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 11` makes; `python -m tutorials check 11` checks all of it. The docstrings there say the shapes.

# %%
import numpy as np

import miniflow as flow
from miniflow.hostcuda import check as kernel_check
from tutorials import check, implementation

impl = implementation(11)
rng = np.random.default_rng(0)

# %% [markdown]
# ## A weighted mean
#
# Each position of a text has three rows of numbers: a *query*, a *key* and a *value*. The *score* of a query and a key
# is their product $q \cdot k$, divided by $\sqrt{E}$, where $E$ is their length. The softmax of the scores of a query
# gives its weights. The result is the mean of the values with these weights:
#
# $$O = \mathrm{softmax}\left(Q K^T / \sqrt{E}\right) V.$$
#
# A model that predicts the next letter must not use it. In *causal* attention a query sees only the keys of its own
# and of earlier positions. The other scores become $-\infty$, so their weights are 0. There may be fewer queries than
# keys: then the queries belong to the last positions. With 2 queries and 5 keys, query 0 is at position 3.
#
# **Task 11.1.** Write `scores(q, k, shift)` and `attention(q, k, v, causal)` in NumPy. `k.mT` swaps the last two dims
# of `k`. Dims in front of them are batch and heads; `@` leaves them alone. Subtract the largest score of each query
# before you take exponentials: then none overflows. `attention` also returns the logarithm of the sum of
# $e^{\text{score}}$, the *logsumexp*. Add what you subtracted. The dtype stays that of `q`: divide by `math.sqrt`,
# since a NumPy number of float64, and `np.where` with one, would turn arrays of float32 into float64.

# %%
q = k = np.eye(3, dtype=np.float32) * 3
weights, lse = impl.attention(q, k, np.eye(3, dtype=np.float32), causal=True)
print(weights.round(2))
print("logsumexp:", lse.round(3))

# %% [markdown]
# The values are the unit matrix, so the result shows the weights themselves. The first query sees one key.
#
# ## The gradient needs no stored weights
#
# Let $W$ be the weights, and $dO$ the gradient of the result. By the chain rule $dV = W^T dO$ and $dW = dO\,V^T$. The
# gradient of a row of softmax is $dS = W (dW - D)$, element by element, where $D$ is the sum of $W\,dW$ over the row.
# This sum is equal to the sum of $dO \cdot O$ over the row, which is cheap. Then $dQ = dS\,K / \sqrt{E}$ and
# $dK = dS^T Q / \sqrt{E}$.
#
# The weights do not have to be kept for this: $W = e^{S - \text{lse}}$, with the saved logsumexp. It also holds for a
# part of the keys. So a kernel can go through the keys in blocks in the backward pass too.
#
# **Task 11.2.** Write `attention_backward`. Use the `o` and `lse` that are given, and compute no softmax.

# %%
q, k, v, do = (rng.standard_normal((5, 4)) for _ in range(4))
tensors = [flow.tensor(x, requires_grad=True) for x in (q, k, v)]
flow.nn.functional.scaled_dot_product_attention(*tensors).backward(flow.tensor(do))
for got, x in zip(impl.attention_backward(q, k, v, *impl.attention(q, k, v), do), tensors):
    print("agrees with the library's gradient:", np.allclose(got, x.grad.numpy()))

# %% [markdown]
# ## Softmax, some keys at a time
#
# 10,000 queries and keys have 100 million scores: 400 MB for each head. FlashAttention never makes this matrix. It goes
# through the keys in blocks. For each query it keeps three things: the largest score so far, the sum of
# $e^{\text{score} - \text{largest}}$, and the sum of $e^{\text{score} - \text{largest}} \cdot \text{value}$.
#
# If a new block has a larger score, the old sums were made with the wrong number subtracted. Multiply both by
# $e^{\text{old} - \text{new}}$, where old and new are the largest scores before and after. This is the *online
# softmax*.
#
# One case needs care. A query may see no key of the first block. Then its largest score is $-\infty$, and
# $-\infty - (-\infty)$ is NaN. Subtract any finite number in that case.
#
# **Task 11.3.** Write `update`, which takes one more block, and `blockwise`, which calls `scores` and `update` for one
# block of keys after the other, beginning at key 0. The last block may be smaller. Start with $-\infty$, 0 and 0, in
# the dtype of `q`. At the end divide. In block `start`, key j is key `start + j` of all: what is `shift`?

# %%
q, k, v = (rng.standard_normal((50, 8)).astype(np.float32) for _ in range(3))
o, lse = impl.attention(q, k, v, causal=True)
for size in (1, 16, 50):
    part, _ = impl.blockwise(q, k, v, size, causal=True)
    print(f"{size:2} keys at a time: the same result:", np.allclose(part, o, atol=1e-5))

# %% [markdown]
# ## The kernel
#
# A block of TILE threads makes TILE queries of one head, a thread each. TILE keys and values at a time are copied into
# shared memory. All threads of the block use them there: a key is read from global memory once for TILE queries. The
# stub has the first lines: each thread has its query, times the scale, and begins with the largest score $-\infty$
# and with sums of 0.
#
# **Task 11.4.** Write the rest of `flash`. For one tile of keys after the other:
# - The threads copy a tile of keys and of values. `copy`, which is given, does it: all threads have to call it.
# - A barrier, `cuda.syncthreads()`: the tiles are complete.
# - Each thread takes one key of the tile after the other: the score, then the update of the largest score, of `total`
#   and of `summed`, as in task 11.3. With `causal` it stops at its own key.
# - A second barrier: nobody needs the tiles any more.
#
# At the end each thread that has a query writes its row of `o` and its number of `lse`. The last tile may have fewer
# keys, and the last block fewer queries than threads. A thread without a query still copies, and comes to each barrier.
# With `causal`, a block does not read keys that none of its queries sees.

# %%
length = 200
q, k, v = (rng.standard_normal((1, length, impl.WIDTH)).astype(np.float32) for _ in range(3))
scale = np.float32(impl.WIDTH**-0.5)
o, lse = np.empty_like(q), np.empty((1, length), np.float32)
blocks = -(-length // impl.TILE)
counts = kernel_check.launch(impl.flash, [q, k, v, scale, False, o, lse], (blocks, 1), impl.TILE, profile=True).total
print("the same as attention:", np.allclose(o, impl.attention(q, k, v)[0], atol=1e-5))
print("reads for a query:", counts.global_loads / length, " each query for itself:", impl.WIDTH * (2 * length + 1))

# %% [markdown]
# The number to beat is the first of the two: elements that are read from global memory, for one query. Which TILE makes
# it smaller? What does a block need more of then?
#
# ## A character model
#
# A transformer block has two parts. Each adds something to its input `x`: first attention between positions, then a
# small network for each position on its own. A LayerNorm comes before each part:
#
# - `x + out(attention(norm(x)))`, then
# - `x + network(norm2(x))`, with the new `x`.
#
# `Block.project`, which is given, makes queries, keys and values. Each is split into *heads*, which attend separately.
# `out` mixes their results.
#
# **Task 11.5.** Write `split`, `join`, `Block.rest`, `Block.forward` and `loss`, with miniflow's tensors and layers.
# `rest` is all that follows attention, with both additions. In `flow.nn.functional` are
# `scaled_dot_product_attention(q, k, v, is_causal=True)`, and `cross_entropy(logits, labels)` for logits (n, letters)
# and labels (n,). For `loss`, every letter of a window but the last goes into the model, in one call. At each place the
# model has to predict the letter after it.

# %%
text = impl.SONNETS.read_text()
letters = sorted(set(text))
codes = np.array([letters.index(letter) for letter in text])
_ = flow.manual_seed(0)
model = impl.Model(len(letters), context=48)
losses = impl.train(model, codes, steps=200, length=48)
print(f"loss at first: {losses[0]:.2f}; a uniform guess: {np.log(len(letters)):.2f}; now: {np.mean(losses[-20:]):.2f}")

# %% [markdown]
# The text is five sonnets by William Shakespeare, of 1609. The loss begins near that of a uniform guess, and falls.
# 200 steps are few: most of what the model writes are not words yet.
#
# ## Writing
#
# To write, take the logits after the last letter, draw the next letter, and go on. The *temperature* divides the logits
# first: near 0 the most probable letter is nearly always drawn, and above 1 the improbable ones more often.
#
# The keys and values of letters that were read do not change. So they are kept in a *cache*. Each step then computes
# only one position, in place of all.
#
# **Task 11.6.** Write `Block.step`, `sample` and `generate`. `step` is `forward` for one position: put the keys and
# values of the cache before its own (`flow.cat`, dim 2). A single query that sees all keys needs no mask. In `sample`
# subtract the largest logit, and compute in float64. The temperature 0 has a rule of its own. In `generate`, `place`
# counts all letters from 0: the first letter that the model writes has place `len(prompt)` when it is fed.

# %%
prompt = [letters.index(letter) for letter in "Shall I "]
for temperature in (0.0, 0.5, 1.0):
    written = impl.generate(model, prompt, 40, temperature, np.random.default_rng(1))
    print(temperature, repr("".join(letters[n] for n in written)))

# %% [markdown]
# Once all tasks pass, the check trains the model once more. It draws the loss, and the weights of the first head for
# one line of the text: the darker a square, the larger the weight.

# %%
passed = check(11)

# %% [markdown]
# ## In miniflow's source
#
# `miniflow/ops/attention.py` has `scaled_dot_product_attention`; it makes all scores, as task 11.1 does.
# `miniflow/nn/modules/attention.py` has `MultiheadAttention`, and `miniflow/nn/modules/transformer.py` the layers of
# transformers. `kernels/layer_norm.py` merges means and variances of parts of a row: the idea of `update`.
#
# Further reading: Vaswani et al. 2017, "Attention Is All You Need"; Milakov and Gimelshein 2018, "Online normalizer
# calculation for softmax"; Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with
# IO-Awareness"; Dao 2023, "FlashAttention-2".
