# %% [markdown]
# # ONNX export and import
#
# After this lesson you can write a network as an ONNX file, run such a file, make it smaller, and bring it to a newer
# version of ONNX. Time: 60 minutes. You need Python and NumPy. miniflow comes with `onnx`; if you also install
# onnxruntime (`pip install onnxruntime`), the checks run your files with it.
#
# Solve the tasks in the notebook, `notebooks/17_onnx.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/17_onnx/student.py` when you run it, and checks the task. Or write in that file, which `python -m tutorials
# start 17` makes; `python -m tutorials check 17` checks all of it.

# %%
import numpy as np
import onnx

import miniflow as flow
from tutorials import check, implementation

impl = implementation(17)

# %% [markdown]
# ## What is in a file
#
# ONNX is a format for trained networks, which many programs write and read. A file is one *message* of protobuf, the
# `ModelProto`. A message is a sequence of *fields*. Each field has a number, which the format gives it, and a value: a
# number, a text, bytes, or another message. This is how they become bytes:
#
# - A number from 0 on is a *varint*: 7 bits in each byte, the lowest first. All bytes but the last have 128 added. 300
#   is 2 * 128 + 44, so it is written as the bytes 172 (44 + 128) and 2.
# - A field begins with a *key*: the varint of 8 times its number, plus its *wire type*. For an int the wire type is 0,
#   and the varint of the value follows. For a text or bytes it is 2; the varint of the length in bytes follows, and
#   then the bytes. Texts are in UTF-8.
# - If a field has several values, each is written with its own key.
#
# **Task 17.1.** Write `varint`, `field` and `node_bytes`. All three return `bytes`. A node of the graph is the message
# `NodeProto`: the names of its inputs are field 1, those of its outputs field 2, and its op is field 4. Write the
# fields in the order of their numbers.

# %%
data = impl.node_bytes("Add", ["a", "b"], ["y"])
print(impl.varint(300), data, onnx.NodeProto.FromString(data), sep="\n")

# %% [markdown]
# ## From steps to nodes
#
# From now on `onnx.helper` writes messages. The network is a recorded program, as in lesson 12; its values have names.

# %%
network = impl.network()
print(*network.steps, sep="\n")

# %% [markdown]
# **Task 17.2.** `translate(step)` returns a node, and a dict of constants that the step needs in addition. A node is
# made by `helper.make_node(op_type, inputs, outputs, **attributes)`. `NAMES` has the names of the ops. Their inputs are
# in the same order. Their attributes differ:
#
# - `Conv` has `strides` for height and width, and `pads` for top, left, bottom, right. Steps have one `stride` and one
#   `padding` for all of them. `BatchNormalization` has `epsilon`, which is `eps` here, and `Softmax` has `axis`, here
#   `dim`.
# - `linear` has a weight of shape (out, in), as in PyTorch. `Gemm` computes $A B + C$, and $A B^T + C$ if its attribute
#   `transB` is 1.
# - The shape for `Reshape` is a second input, an array of int64. So it has to be a constant, whose name nobody uses:
#   take `step.output` and ".shape". `step.options["shape"]` begins with the batch of the record. The model shall run
#   with other batches: a size of -1 means "what is left".

# %%
node, constants = impl.translate(network.steps[7])
print(node, constants)

# %% [markdown]
# **Task 17.3.** `export(program)` puts all nodes in a graph and a model. `numpy_helper.from_array(array, name)` makes
# an *initializer* of each constant. `helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)` describes an input
# or output; the first of the sizes is the text "batch", which allows any number. Then come `helper.make_graph(nodes,
# name, inputs, outputs, initializers)` and `helper.make_model(graph, opset_imports=[...], ir_version=IR_VERSION)` with
# one `helper.make_opsetid("", OPSET)`. The *opset* is the version of the operators. Leave the program as it is.

# %%
model = impl.export(network)
onnx.checker.check_model(model, full_check=True)
print(len(model.graph.node), "nodes,", len(model.SerializeToString()), "bytes")
loaded, images = flow.onnx.load(model), flow.rand(2, 1, 8, 8)
print(loaded(images).shape)

# %% [markdown]
# `flow.onnx.load` made a module of your file, and ran it with a batch of 2; the record had 5.
#
# ## Run a model
#
# **Task 17.4.** `run(model, feeds)` is a runtime of ten lines. Keep values in a dict by name: first the initializers
# (`arrays_of`), then the feeds, which replace initializers of the same name. The nodes of a valid model are in an order
# in which they can run. Call `OPERATORS[node.op_type]` with the values of `node.input`. The name "" stands for an input
# that is absent: pass None. `{a.name: helper.get_attribute_value(a) for a in node.attribute}` are the attributes: pass
# them by name. The result has the name `node.output[0]`. Return a dict of the outputs of `model.graph.output`, and
# leave the feeds as they are. For an op that is not in `OPERATORS`, raise a `NotImplementedError` with its name.
#
# Write three of the operators. An attribute that is absent has its default:
#
# - `gemm`: `alpha` and `beta` are 1.0, `transA` and `transB` are 0. C is broadcast, and may be absent.
# - `softmax`: `axis` is -1. Subtract the largest number along the axis before `exp`, since $e^{1000}$ is too large.
# - `reshape`: a 0 in the shape copies the size of `x` at the same place, unless the attribute `allowzero` is 1; its
#   default is 0. A -1 is what NumPy understands by it.

# %%
x = images.numpy()
got = impl.run(model, {"x": x})["y"]
print("rows add up to", got.sum(1).round(4))
print("as in miniflow:", np.allclose(got, loaded(images).detach().numpy(), atol=1e-5))

# %% [markdown]
# ## Fold batch normalization
#
# After training, a batch normalization is one product and one sum for each channel: $y = s\,(x - \mu) + \beta$ with $s
# = \gamma / \sqrt{\sigma^2 + \epsilon}$. Its inputs are $x, \gamma, \beta, \mu, \sigma^2$, in this order. A convolution
# before it computes $x = W * z + b$. So one convolution with other weights does both: each output channel of $W$ is
# multiplied by its $s$, and the bias becomes $s\,(b - \mu) + \beta$.
#
# **Task 17.5.** `fold(model)` returns a new model, made by the given `rebuilt`, in which every `BatchNormalization`
# after a `Conv` is gone, if
#
# - all inputs of both but the first are initializers. The bias of the Conv may be absent: it is 0;
# - nobody else reads the result of the Conv: no other node, and it is no output of the model.
#
# The Conv keeps its attributes, and writes what the `BatchNormalization` wrote. Other nodes may read the old weights,
# so add new arrays with names that nobody uses. `epsilon` is 1e-5 if it is absent. If a second one follows, fold it
# too. New arrays are float32. Change copies of nodes (`copy.deepcopy`): the given model stays as it is.

# %%
folded = impl.fold(model)
print(len(model.graph.node), "nodes before,", len(folded.graph.node), "after")
print("the same results:", np.allclose(impl.run(folded, {"x": x})["y"], got, atol=1e-5))

# %% [markdown]
# ## Another opset
#
# Operators change from opset to opset. In opset 13 the axes of `Squeeze`, `Unsqueeze` and `ReduceSum` became an input:
# now they may be computed. They are the second input, an array of int64, and no longer an attribute.
#
# **Task 17.6.** `upgrade(model)` makes a model of opset 13 from one of opset 12. If a node of one of the ops in
# `AXES_MOVED` has the attribute `axes`, remove it, and add an initializer with a name that nobody uses. Without the
# attribute a node stays as it is, and so do other attributes and other ops. Use `rebuilt(model, nodes, arrays,
# opset=13)`.

# %%
text = "(float[3, 1] x) => (float[3] y) { y = Squeeze<axes=[1]>(x) }"
old = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["": 12]> old {text}')
new = impl.upgrade(old)
print(*new.graph.node[0].input, impl.arrays_of(new))

# %% [markdown]
# When all tasks pass, the check draws your exported network, before and after folding.

# %%
passed = check(17)

# %% [markdown]
# The number to beat is the nodes that are left: 10. With two more rules 8 are possible. What do two nodes `Reshape` in
# a row do? And two `Gemm` with nothing in between? $(x A + a) B + b$ is a product of $x$ with one matrix.
#
# ## In miniflow's source
#
# `flow.onnx.export` records a module, and `miniflow/onnx/exporter/handlers/` translates each op, as `translate` does.
# `miniflow/onnx/exporter/optimizer.py` has `fold_batch_norms` and more rules. `miniflow/onnx/loader/operators/` has the
# operators for `flow.onnx.load`; what differs between opsets stands in the function. `docs/onnx.md` counts which tests
# of ONNX pass.
#
# Further reading: the ONNX specification, "Open Neural Network Exchange intermediate representation" and "Operator
# schemas"; Google, "Protocol buffers: encoding"; Ioffe and Szegedy 2015, "Batch normalization: accelerating deep
# network training by reducing internal covariate shift"; Jacob et al. 2018, "Quantization and training of neural
# networks for efficient integer-arithmetic-only inference", on folding.
