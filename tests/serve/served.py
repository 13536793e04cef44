"""Models for the tests of serving, and requests for them."""

import json

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.serve.protocol import HEADER

ROWS = 4


class Step(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, *inputs):
        return self.module(*inputs)


class Mixed(nn.Module):
    """Takes a table's rows, numbers and flags, and returns two tensors."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)

    def forward(self, index, x, flag):
        y = self.embedding(index).sum(1) + flow.where(flag, x, -x)
        return y, y.argmax(1, keepdim=True)


def save_models(folder):
    """Save three models for a server, and return their graphs."""
    examples = {
        "network": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)), [(1, 8, 8)]),
        "half": (nn.Sequential(nn.ReLU()), [(3,)]),
    }
    graphs = {name: Step(module.eval()) for name, (module, _) in examples.items()}
    graphs["mixed"] = Step(Mixed())
    inputs = {name: [flow.randn(ROWS, *shape) for shape in shapes] for name, (_, shapes) in examples.items()}
    inputs["half"] = [x.to(flow.float16) for x in inputs["half"]]
    inputs["mixed"] = mixed_inputs(ROWS)
    for name, graph in graphs.items():
        graph(*inputs[name])
        graph.save(folder / name, serve=True)
    return graphs


def mixed_inputs(rows):
    return [flow.randint(0, 7, (rows, 2)), flow.randn(rows, 3), flow.randn(rows, 3) > 0]


NAMES = {"float32": "FP32", "float16": "FP16", "int64": "INT64", "bool": "BOOL", "float64": "FP64"}


def entry(i, x, **changes):
    """An input in JSON."""
    datatype = NAMES[x.numpy().dtype.name]
    return {"name": f"INPUT_{i}", "shape": list(x.shape), "datatype": datatype, "data": x.tolist(), **changes}


def document(*tensors, **more):
    return {"inputs": [entry(i, x) for i, x in enumerate(tensors)], **more}


def binary(*tensors, **more):
    """Body and headers of a request with binary data."""
    inputs, data = [], b""
    for i, x in enumerate(tensors):
        inputs.append(entry(i, x, parameters={"binary_data_size": x.numpy().nbytes}))
        inputs[-1].pop("data")
        data += x.numpy().tobytes()
    head = json.dumps({"inputs": inputs, **more}).encode()
    return head + data, {HEADER: str(len(head))}


def outputs_of(response):
    """The arrays of a response by name."""
    assert response.status_code == 200, response.text
    size = int(response.headers.get(HEADER, len(response.content)))
    data, found = response.content[size:], {}
    dtypes = {datatype: np.dtype(name) for name, datatype in NAMES.items()}
    for output in json.loads(response.content[:size])["outputs"]:
        dtype = dtypes[output["datatype"]]
        if "data" in output:
            array = np.array(output["data"], dtype)
        else:
            used = output["parameters"]["binary_data_size"]
            array, data = np.frombuffer(data[:used], dtype), data[used:]
        found[output["name"]] = array.reshape(output["shape"])
    assert not data
    return found
