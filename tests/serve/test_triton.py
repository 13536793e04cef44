"""A real Triton serves saved graphs: answers are those of the graph, wrong requests are refused, and it stays alive."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from checks import FRESH_SEED

import miniflow as flow
from miniflow import nn
from miniflow.errors import WorkerError
from miniflow.serialization.states import GRAPH
from miniflow.serve import prepare
from miniflow.serve.server import started
from miniflow.vision.models import LeNet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("pytriton") is None, reason="needs Triton: pip install --no-deps nvidia-pytriton==0.7.0"
    ),
]
ROWS, FEATURES = 6, 5
NUMPY = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "BOOL": np.bool_, "FP16": np.float16}
DATATYPES = {np.dtype(dtype): name for name, dtype in NUMPY.items()}


class Step(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, *tensors):
        return self.module(*tensors)


class Statistics(nn.Module):
    """Two inputs and three outputs of other dtypes; the first output is not contiguous."""

    def forward(self, x, keep):
        return x.half().T.T, x.double() * 2, keep.logical_not()


class Total(nn.Module):
    """Takes and returns tensors without dims behind the rows."""

    def forward(self, x, weight):
        return x.sum(1) * weight, x.argmax(1)


def compiled(module, *tensors):
    graph = Step(module.eval())
    graph(*tensors)
    return graph


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Client:
    """Speaks the protocol of KServe, version 2, over one connection for each request."""

    def __init__(self, port, process=None):
        self.port, self.process = port, process

    def post(self, path, body, headers=None):
        """The status, the headers and the body of the response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", f"/v2/{path}", body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def answers(self, model, *arrays):
        """The outputs for arrays, sent and received as JSON."""
        status, _, body = self.post(f"models/{model}/infer", json.dumps({"inputs": inputs_of(arrays)}))
        assert status == 200, body
        return [
            np.array(output["data"], NUMPY[output["datatype"]]).reshape(output["shape"])
            for output in json.loads(body)["outputs"]
        ]

    def binary_answers(self, model, *arrays):
        """The outputs for arrays, sent and received as bytes."""
        status, headers, body = self.post(f"models/{model}/infer", *binary(*arrays))
        assert status == 200, body
        size, found = int(headers["Inference-Header-Content-Length"]), []
        head, rest = json.loads(body[:size]), body[size:]
        for output in head["outputs"]:
            count = output["parameters"]["binary_data_size"]
            found.append(np.frombuffer(rest[:count], NUMPY[output["datatype"]]).reshape(output["shape"]))
            rest = rest[count:]
        assert not rest
        return found

    def refused(self, model, body, headers=None):
        """The status and the sentence of a refusal."""
        status, _, body = self.post(f"models/{model}/infer", body, headers)
        return status, json.loads(body)["error"]


def inputs_of(arrays, **more):
    return [
        {"name": f"INPUT_{i}", "shape": x.shape, "datatype": DATATYPES[x.dtype]}
        | (more or {"data": x.ravel().tolist()})
        for i, x in enumerate(arrays)
    ]


def binary(*arrays):
    """The body and the headers of a request in the binary form."""
    inputs = [inputs_of([x], parameters={"binary_data_size": x.nbytes})[0] for x in arrays]
    for i, entry in enumerate(inputs):
        entry["name"] = f"INPUT_{i}"
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + b"".join(x.tobytes() for x in arrays), {"Inference-Header-Content-Length": str(len(head))}


@pytest.fixture(scope="module")
def graphs():
    """Graphs that were called once, by the names of their models."""
    x = flow.randn(ROWS, FEATURES)
    network = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 3))
    return {
        "network": compiled(network, x),
        "table": compiled(nn.Embedding(7, 4), flow.zeros(ROWS, 2, dtype=flow.int64)),
        "statistics": compiled(Statistics(), x, x > 0),
        "digits": compiled(LeNet(), flow.randn(ROWS, 1, 28, 28)),
        "total": compiled(Total(), x, x[:, 0]),
    }


@pytest.fixture(scope="module")
def server(graphs, tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("models"), free_port()
    for name, graph in graphs.items():
        flow.save(graph, folder / name)
    with started(prepare(folder), "127.0.0.1", port) as process:
        yield Client(port, process)
    with pytest.raises(ConnectionRefusedError):
        Client(port).post("models/network/infer", "")


def rows(count=ROWS):
    return np.random.default_rng().standard_normal((count, FEATURES), np.float32)


def identical(x, y):
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


@pytest.mark.parametrize("form", ["answers", "binary_answers"])
def test_answers_are_those_of_the_graph(server, graphs, form):
    x = rows()
    (found,) = getattr(server, form)("network", x)
    assert identical(found, graphs["network"](flow.tensor(x)).numpy())
    hidden, last = graphs["network"].module[0], graphs["network"].module[2]
    weights = [t.detach().numpy().astype(np.float64) for t in (hidden.weight, hidden.bias, last.weight, last.bias)]
    expected = np.maximum(x @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", range(1, ROWS + 1))
def test_batches_of_all_sizes(server, graphs, count):
    x = rows(count)
    (found,) = server.binary_answers("network", x)
    padded = np.concatenate([x, np.zeros((ROWS - count, FEATURES), np.float32)])
    np.testing.assert_allclose(found, graphs["network"](flow.tensor(padded)).numpy()[:count], rtol=1e-5, atol=1e-6)


def test_dtypes_and_several_tensors(server):
    x = rows()
    found = server.binary_answers("statistics", x, x > 0)
    assert all(map(identical, found, [x.astype(np.float16), x.astype(np.float64) * 2, x <= 0]))


def test_tensors_of_no_dims_but_the_rows_have_one_in_requests(server, graphs):
    x = rows()
    found = server.binary_answers("total", x, x[:, :1])
    expected = [y.numpy()[:, None] for y in graphs["total"](flow.tensor(x), flow.tensor(x[:, 0]))]
    assert all(map(identical, found, expected))


def changed(**entries):
    x = rows(2)
    return json.dumps({"inputs": [inputs_of([x])[0] | entries]})


REFUSED = {  # what is wrong: a body, the status, words of the sentence
    "name": (lambda: changed(name="INPUT_9"), 400, "unexpected inference input 'INPUT_9' for model 'network'"),
    "dtype": (lambda: changed(datatype="FP64"), 400, "data-type is 'FP64', but model 'network' expects 'FP32'"),
    "dims": (lambda: changed(shape=[1, 10]), 400, "unexpected shape for input 'INPUT_0' for model 'network'"),
    "count": (lambda: changed(shape=[3, FEATURES]), 500, "Shape does not match true shape of 'data' field"),
    "truth": (lambda: changed(data=[1.0] * 9 + [True]), 500, "attempt to access JSON non-number as double"),
    "batch": (
        lambda: json.dumps({"inputs": inputs_of([rows(99)])}),
        400,
        "inference request batch-size must be <= ",
    ),
    "no rows": (lambda: json.dumps({"inputs": inputs_of([rows(0)])}), 400, "size mismatch for input 'INPUT_0'"),
    "no inputs": (lambda: json.dumps({"inputs": []}), 400, "expected 1 inputs but got 0 inputs for model 'network'"),
    "not JSON": (lambda: "not JSON", 500, "failed to parse the request JSON buffer: Invalid value"),
    "truncated JSON": (lambda: changed()[:-9], 500, "failed to parse the request JSON buffer: Missing a comma"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_wrong_requests_are_refused(server, wrong):
    """Triton itself answers 500 for what it cannot parse."""
    body, status, sentence = REFUSED[wrong]
    found = server.refused("network", body())
    assert found[0] == status
    assert sentence in found[1]


def test_unknown_models_are_refused(server):
    status, sentence = server.refused("unknown", changed())
    assert (status, sentence) == (404, "Request for unknown model: 'unknown' is not found")


def test_truncated_binary_bodies_are_refused(server):
    body, headers = binary(rows())
    assert server.refused("network", body[:-5], headers) == (
        400,
        "unexpected size for input 'INPUT_0', expecting 5 additional bytes for model 'network'",
    )
    status, sentence = server.refused("network", body, {"Inference-Header-Content-Length": "99999"})
    assert status == 400 and "99999" in sentence


def test_what_the_graph_refuses_has_its_sentence(server):
    """A request that is refused leaves those of the same batch alone."""
    status, sentence = server.refused("table", json.dumps({"inputs": inputs_of([np.array([[1, 7]])])}))
    assert status == 400
    assert "index 7" in sentence
    assert server.answers("table", np.array([[1, 6]]))[0].shape == (1, 2, 4)


@pytest.mark.parametrize(
    "path", ["systemsharedmemory/region/x/register", "repository/index", "trace/setting", "logging"]
)
def test_what_is_not_for_clients_is_closed(server, path):
    status, _, body = server.post(path, "{}")
    assert status == 403
    assert "This API is restricted, expecting header 'key'" in json.loads(body)["error"]


def mutated(body, generator):
    """A body with a few bytes replaced, removed or doubled, or its end cut off."""
    body = bytearray(body)
    for _ in range(generator.randint(1, 4)):
        start = generator.randrange(len(body) or 1)
        end = start + generator.randint(1, 8)
        kind = generator.randrange(4)
        piece = [generator.randbytes(end - start), b"", bytes(body[start:end]) * 2, b""][kind]
        body[start : len(body) if kind == 3 else end] = piece
    return bytes(body)


def test_mutations_leave_it_alive(server, graphs):
    generator, statuses = random.Random(FRESH_SEED), []
    body, headers = binary(rows())
    text = json.dumps({"inputs": inputs_of([rows()])}).encode()
    for i in range(300):
        form, given = ((body, headers), (text, {}))[i % 2]
        if generator.random() < 0.2 and given:
            given = {"Inference-Header-Content-Length": str(generator.choice([-1, 0, 1, 2**31, 2**64, "x"]))}
        try:
            status, _, answer = server.post("models/network/infer", mutated(form, generator), given)
        except HTTPException:
            pytest.fail(f"no response to request {i}")
        assert status == 200 or json.loads(answer.decode(errors="replace"))["error"]  # repeats names in any bytes
        statuses.append(status)
    assert {200, 400} <= set(statuses) <= {200, 400, 404, 500}
    x = rows()
    assert identical(server.binary_answers("network", x)[0], graphs["network"](flow.tensor(x)).numpy())
    assert server.process.poll() is None


def stubs(server, model):
    """The processes that run a model."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        if parent == server.process.pid and f"{model}_0_0" in command:
            found.append(int(folder.name))
    return found


def test_killed_instances_are_started_again(server):
    x = rows()
    for _ in range(2):
        (before,) = stubs(server, "statistics")
        os.kill(before, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while server.post("models/statistics/infer", *binary(x, x > 0))[0] != 200:
            assert time.monotonic() < deadline, "no answer within a minute after an instance was killed"
            time.sleep(0.2)
        (after,) = stubs(server, "statistics")
        assert after != before
        assert identical(server.binary_answers("statistics", x, x > 0)[1], x.astype(np.float64) * 2)


def test_slow_clients_do_not_block_others(server, graphs):
    x = rows()
    body, headers = binary(x)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /v2/models/network/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode()
    slow = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(40)]
    try:
        for connection in slow:
            connection.sendall(request + body[:-9])
        expected = graphs["network"](flow.tensor(x)).numpy()
        assert identical(server.binary_answers("network", x)[0], expected)
        slow[0].sendall(body[-9:])
        answer = b""
        while not answer.endswith(expected.tobytes()):
            received = slow[0].recv(65536)
            assert received, answer
            answer += received
        assert answer.startswith(b"HTTP/1.1 200 OK")
    finally:
        for connection in slow:
            connection.close()
    assert identical(server.binary_answers("network", x)[0], expected)  # after 39 that were never complete


@pytest.fixture
def models(tmp_path):
    """A folder of three saved graphs, of which one is broken."""
    for name in ("good", "broken", "last"):
        flow.save(compiled(nn.Linear(FEATURES, 2), flow.randn(ROWS, FEATURES)), tmp_path / name)
    (model,) = prepare(tmp_path / "broken")
    (model / "1" / "model" / GRAPH).write_text("{")
    return tmp_path


def test_one_command_serves(models, tmp_path_factory):
    """It prints a request that works, names what cannot be loaded, and Ctrl-C ends all that it started."""
    port, scratch = free_port(), tmp_path_factory.mktemp("scratch")
    command = [sys.executable, "-m", "miniflow.serve", str(models), "--http-port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(scratch)}
    )
    try:
        lines = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        example = next(line for line in lines if "/v2/models/good/infer" in line)
        answer = json.loads(subprocess.run(example, shell=True, capture_output=True, check=True).stdout)
        x = flow.zeros(ROWS, FEATURES)
        graph = flow.load(models / "good" / "1" / "model")
        expected = graph(x).numpy()[:1]
        np.testing.assert_array_equal(np.array(answer["outputs"][0]["data"], np.float32)[None], expected)
        assert Client(port).answers("last", rows(1))[0].shape == (1, 2)
        time.sleep(3)  # Triton looks for changes of its models each second
    finally:
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 0, errors
    assert "serve: broken cannot be loaded; Triton has logged why" in errors and "Traceback" not in errors
    assert "PyCapsule" not in errors
    assert 1 <= errors.count("failed to load 'broken' version 1: Internal: CheckpointError: load: ") <= 2
    assert not list(scratch.iterdir())
    with pytest.raises(ConnectionRefusedError):
        Client(port).post("models/good/infer", "")
    files = {path.relative_to(models / "broken").as_posix() for path in (models / "broken").rglob("*.*")}
    assert files == {"config.pbtxt", "1/model.py", f"1/model/{GRAPH}"}  # it removes and writes nothing


def test_a_server_that_is_killed_is_told(models):
    command = [sys.executable, "-m", "miniflow.serve", str(models / "good"), "--engine", "triton", "--http-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert any("triton listens on http://127.0.0.1:" in line for line in iter(process.stdout.readline, ""))
        children = " ".join(path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/children")).split()
        (triton,) = [x for x in children if "--http-port" in Path(f"/proc/{x}/cmdline").read_text()]
        os.kill(int(triton), signal.SIGKILL)
        errors = process.communicate(timeout=60)[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.endswith("serve: triton has ended by itself; expected it to answer until Ctrl-C\n")


def test_a_server_of_no_model_ends(models, capfd):
    with (
        pytest.raises(WorkerError, match="serve: no model can be loaded; Triton has logged why"),
        started([models / "broken"], "127.0.0.1", free_port()),
    ):
        pass
    assert "failed to load 'broken' version 1: Internal: CheckpointError" in capfd.readouterr().err


CONFIG = """
name: "resnet"
backend: "oneflow"
max_batch_size: 1
input [
  { name: "INPUT_0" data_type: TYPE_FP32 dims: [ 3, 32, 32 ] }
]
output [
  { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [ 10 ] }
]
instance_group [
  { count: 1 kind: KIND_CPU }
]
"""


def test_the_client_of_the_documentation(server, graphs, capsys):
    pytest.importorskip("tritonclient.http", reason="needs tritonclient[http]")
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"\n\n((?:    import numpy.*\n)(?:(?:    .*)?\n)*)\n", page)
    exec(textwrap.dedent(block).replace(":8000", f":{server.port}"), {})
    expected = graphs["digits"](flow.zeros(ROWS, 1, 28, 28)).numpy()[:1]
    numbers = re.findall(r"[-+.\de]+", capsys.readouterr().out)
    np.testing.assert_allclose(np.array(numbers, np.float32)[None], expected, rtol=1e-4, atol=1e-6)


def test_the_page_of_oneflow_on_serving(tmp_path):
    """A repository as OneFlow's documentation has it, config and all, asked by its client."""
    httpclient = pytest.importorskip("tritonclient.http", reason="needs tritonclient[http]")
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(1800, 10))
    graph = compiled(model, flow.randn(1, 3, 32, 32))
    (tmp_path / "resnet" / "1").mkdir(parents=True)
    flow.save(graph, tmp_path / "resnet" / "1" / "model")
    (tmp_path / "resnet" / "config.pbtxt").write_text(CONFIG)
    port = free_port()
    with started(prepare(tmp_path), "127.0.0.1", port):
        image = np.random.default_rng().integers(0, 256, (32, 32, 3)) / 255
        image = np.transpose(np.expand_dims(image, axis=0), axes=[0, 3, 1, 2]).astype(np.float32)
        triton_client = httpclient.InferenceServerClient(url=f"127.0.0.1:{port}")
        given = httpclient.InferInput("INPUT_0", image.shape, "FP32")
        given.set_data_from_numpy(image, binary_data=True)
        scores = httpclient.InferRequestedOutput("OUTPUT_0", binary_data=True)
        found = triton_client.infer("resnet", inputs=[given], outputs=[scores]).as_numpy("OUTPUT_0")
        best = httpclient.InferRequestedOutput("OUTPUT_0", binary_data=True, class_count=1)
        value, number = (
            triton_client.infer("resnet", inputs=[given], outputs=[best]).as_numpy("OUTPUT_0")[0, 0].decode().split(":")
        )
        triton_client.close()
    expected = graph(flow.tensor(image)).numpy()
    assert identical(found, expected)
    assert int(number) == expected.argmax()
    np.testing.assert_allclose(float(value), expected.max(), rtol=1e-5)
