# %% [markdown]
# # From graph to server
#
# A trained network is of use when others can ask it. After this lesson you know what happens between a request over
# HTTP and its answer: how numbers travel, why a server joins requests to batches, and how its speed is told honestly.
# You have written these parts yourself, and have seen one network answer in three ways: as a graph, in another program,
# and through a server. Time: 30 minutes. You need NumPy; it helps to know `nn.Graph` (lesson 12) and ONNX (lesson 17).
#
# Solve the tasks in the notebook, `notebooks/20_serving.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/20_serving/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 20` makes; `python -m tutorials check 20` checks all of it.

# %%
import importlib.util
import json
import tempfile

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.serve import ServedModel
from tutorials import check, implementation

impl = implementation(20)


def installed(*names):
    """Whether all these packages are there."""
    return all(importlib.util.find_spec(name) for name in names)


# %% [markdown]
# ## A graph in a folder
#
# A *graph* holds the program of a network without its Python code. `graph.save` with `serve=True` writes it to a
# folder, together with a description for servers: which inputs and outputs there are, with which dtypes and dims, and
# how many rows a batch may have. The size of the batch is not among the dims.

# %%
flow.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
graph = nn.Graph.trace(model)
graph(flow.zeros(4, 8, 8))
folder = tempfile.mkdtemp()
graph.save(f"{folder}/digits", serve=True)
with open(f"{folder}/digits/config.pbtxt") as file:
    print(file.read())

# %% [markdown]
# ## How numbers travel
#
# A request names each input, its datatype and its shape, and sends the numbers in a flat list. This is the protocol of
# *KServe*, which many servers speak:
#
#     {"inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 3], "data": [0.5, 2.0, -1.0]}]}
#
# The server must not trust it. The list may have too many numbers or too few. A size may be negative: NumPy's `reshape`
# takes -1 for "find out", and would accept it.
#
# **Task 20.1.** Write `values`. `np.frombuffer` makes an array of bytes.

# %%
print(impl.values({"datatype": "INT64", "shape": [2, 2], "data": [1, 2, 3, 4]}))
print(impl.values({"datatype": "FP32", "shape": [2]}, np.float32([0.1, 0.2]).tobytes()))

# %% [markdown]
# As text a number takes about 20 bytes, and time to be read. So there is a second form: the JSON says how many bytes an
# input has, in `"parameters": {"binary_data_size": 12}` in place of `"data"`, and the bytes of all such inputs follow
# behind the JSON. A header of HTTP tells where the JSON ends.
#
# **Task 20.2.** Write `read`. Some inputs may have their numbers in the JSON, and others behind it. `json.loads` also
# takes bytes, and its error is a `ValueError`.

# %%
image = np.random.default_rng(0).random((1, 8, 8), np.float32)
entry = {"name": "INPUT_0", "datatype": "FP32", "shape": [1, 8, 8]}
text = json.dumps({"inputs": [entry | {"data": image.reshape(-1).tolist()}]}).encode()
head = json.dumps({"inputs": [entry | {"parameters": {"binary_data_size": image.nbytes}}]}).encode()
print(len(text), "bytes as text,", len(head + image.tobytes()), "as binary data")
print(
    "the same:",
    (impl.read(text, len(text))["INPUT_0"] == impl.read(head + image.tobytes(), len(head))["INPUT_0"]).all(),
)

# %% [markdown]
# ## Batches
#
# Eight requests of one row can be answered by eight calls, or by one call on a batch of eight rows. One call is faster:
# its overhead comes once, and each weight is loaded from memory once for eight rows. The clients should not notice, but
# for the time.
#
# **Task 20.3.** Write `answers`. Requests may have more than one row.

# %%
rows = [flow.randn(n, 8, 8).numpy() for n in (1, 3, 2)]
print([answer.shape for answer in impl.answers(lambda batch: model(flow.tensor(batch)).detach().numpy(), rows)])

# %% [markdown]
# But when does a batch begin? If the server waits until it is full, the last client of the day waits forever. If it
# never waits, the first request of eight is computed alone, and the other seven wait for it. The usual rule has two
# numbers: a batch begins when it is full, or when its first request has waited for the *delay*. And only one batch is
# computed at a time, so requests also gather while the server is busy: under load the delay hardly matters.
#
# **Task 20.4.** Write `schedule`. It needs no clock: the times of the requests are given, and how long a batch takes.

# %%
arrivals = [0, 1, 2, 3, 20, 21]
for delay in (0, 3, 10):
    print(f"delay {delay:2}:", impl.schedule(arrivals, lambda rows: 4 + rows, 4, delay))

# %% [markdown]
# ## How fast is it?
#
# The mean hides what annoys people: if 98 of 100 answers take 1 ms, and two take a second, it is 21 ms, which nobody
# has met. So servers are judged by *percentiles*. The 99th, p99, is the latency that 99 % of the requests do not
# exceed.
#
# **Task 20.5.** Write `percentile`.

# %%
rng = np.random.default_rng(0)
for most in (1, 8):
    for gap in (6.0, 4.0):
        arrivals = np.cumsum(rng.exponential(gap, 2000)).tolist()
        batches = impl.schedule(arrivals, lambda rows: 4 + 0.5 * rows, most, 0)
        ends = [end for _, end, rows in batches for _ in range(rows)]
        latencies = [end - arrival for end, arrival in zip(ends, arrivals)]
        p50, p99 = (impl.percentile(latencies, share) for share in (0.5, 0.99))
        print(f"a request every {gap} ms, batches of at most {most}: p50 {p50:7.1f} ms, p99 {p99:7.1f} ms")

# %% [markdown]
# A batch of one row takes 4.5 ms here. With a request every 4 ms the server that takes them one by one can never catch
# up, and the latency grows for as long as they come. With batches it does not.
#
# ## One network, three ways
#
# The graph answers in this process. `ServedModel` is what miniflow's server calls: it checks the request, and runs the
# saved graph. `onnxruntime` is another program, which gets the network as a file of ONNX. And `miniflow.serve.app` is
# the whole server; here its client is in the same process. `python -m miniflow.serve FOLDER` starts it for others.

# %%
x = flow.tensor(image)
expected = graph(x).numpy()
(answer,) = ServedModel(f"{folder}/digits").answer([{"INPUT_0": x}])
print("the saved graph differs by", abs(answer["OUTPUT_0"].numpy() - expected).max())
if installed("onnxruntime"):
    import onnxruntime

    file = flow.onnx.export(model, x, input_names=["x"]).SerializeToString()
    (found,) = onnxruntime.InferenceSession(file).run(None, {"x": image})
    print("onnxruntime differs by less than 1e-5:", bool(abs(found - expected).max() < 1e-5))
if installed("starlette", "uvicorn", "httpx2"):
    from starlette.testclient import TestClient

    from miniflow.serve import app

    with TestClient(app(folder)) as client:
        response = client.post("/v2/models/digits/infer", content=text).json()
        wrong = client.post("/v2/models/digits/infer", content=text[:-9])
    print("the server differs by", abs(np.float32(response["outputs"][0]["data"]) - expected).max())
    print(wrong.status_code, wrong.json()["error"])

# %% [markdown]
# The saved graph runs the same kernels on the same numbers, so its answers are equal to the last bit; text in JSON has
# enough digits to keep them. onnxruntime adds up in another order, so its numbers differ by rounding.

# %%
passed = check(20)

# %% [markdown]
# ## In miniflow's source
#
# `miniflow/serve/protocol.py` has `read` with all that can be wrong, `miniflow/serve/batches.py` the rule for batches
# with a clock, and `miniflow/serve/model.py` joins requests: if one is refused, for instance for an index out of range,
# the others are computed without it. `python -m benchmarks serve` measures requests per second, p50 and p99.
#
# Further reading: KServe, "Open inference protocol"; NVIDIA, "Triton inference server: dynamic batcher"; Dean and
# Barroso 2013, "The tail at scale", on percentiles.
