"""Graphs that are saved as folders, for tests of loading them."""

import json

from compare import count_comparison

import miniflow as flow
from miniflow import nn
from miniflow.graph.serialize import DOCUMENT
from miniflow.serialization.states import GRAPH, read_file, write_file


class Predict(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x)


class Train(nn.Graph):
    def __init__(self, model, optimizer, scaler=None, lr_sch=None):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=lr_sch)
        self.set_grad_scaler(scaler)

    def build(self, x, y):
        logits = self.model(x)
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        return {"loss": loss, "rest": (logits, None)}


def network():
    flow.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(64, 10),
    )  # fmt: skip


def batch():
    generator = flow.Generator().manual_seed(3)
    return flow.randn(5, 1, 8, 8, generator=generator), flow.tensor([1, 2, 3, 4, 5])


def trained(folder, optimizer=None, scaler=None, plain=True):
    """A graph that made two steps and was saved."""
    model = network()
    graph = Train(
        model, optimizer(model.parameters()) if optimizer else flow.optim.SGD(model.parameters(), 0.1), scaler
    )
    if plain:
        graph.config.disable_pass("elementwise_fusion")  # compiling its loops takes longer than everything else here
    graph(*batch())
    graph(*batch())
    flow.save(graph, folder)
    return graph


def document_of(folder):
    """The JSON object in the file of a graph."""
    return json.loads(read_file(folder / GRAPH)[1][DOCUMENT])


def program_in(document):
    """The program in the document of a graph."""
    return document["graph"]["program"]["program"]


def at(document, path):
    """The object or list that holds a part of a document, and its key; of the path tags may be left out."""
    *outer, key = path
    for step in outer:
        document = without_tags(document, step)[step]
    return without_tags(document, key), key


def without_tags(document, key):
    """What is within the tags around a list, or around an object that has other keys than `key`."""
    while isinstance(document, dict) and key not in document and len(document) == 1:
        (document,) = document.values()
    return document


def sign(document, folder, weights=None):
    """Write a document with the right checksum: what somebody would do who means harm."""
    arrays = read_file(folder / GRAPH)[0] if weights is None else weights
    text = document if isinstance(document, str) else json.dumps(document)
    write_file(folder / GRAPH, arrays, {DOCUMENT: text})


def assert_equal(a, b):
    count_comparison()
    assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
    assert a.numpy().tobytes() == b.numpy().tobytes()


def same_steps(graph, loaded, count=3):
    """The same results, bit for bit, of `count` calls with the same draws."""
    found = []
    for one in (graph, loaded):
        flow.manual_seed(5)
        found.append([one(*batch()) for _ in range(count)])
    for a, b in zip(*found, strict=True):
        assert_equal(a["loss"], b["loss"])
        assert_equal(a["rest"][0], b["rest"][0])
        assert b["rest"][1] is None
    return found[0]
