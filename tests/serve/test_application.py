"""The application answers as KServe's protocol says, with the numbers of the graph, and joins requests."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest
from compare import assert_close
from served import Step, binary, document, entry, mixed_inputs, outputs_of, save_models
from starlette.testclient import TestClient

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, CheckpointError
from miniflow.serve import app, read_config, write_config


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    graphs = save_models(folder)
    with TestClient(app(folder)) as client:
        yield client, graphs


def infer(client, model, body, **options):
    if isinstance(body, dict):
        return client.post(f"/v2/models/{model}/infer", json=body)
    content, headers = body
    return client.post(f"/v2/models/{model}/infer", content=content, headers=headers)


def test_health_and_metadata(serving):
    client, _ = serving
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/mixed/ready", "/v2/models/mixed/versions/1/ready"):
        assert client.get(path).status_code == 200
    about = client.get("/v2").json()
    assert about["name"] == "miniflow" and about["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/models/mixed").json() == {
        "name": "mixed",
        "versions": ["1"],
        "platform": "miniflow",
        "inputs": [
            {"name": "INPUT_0", "datatype": "INT64", "shape": [-1, 2]},
            {"name": "INPUT_1", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "INPUT_2", "datatype": "BOOL", "shape": [-1, 3]},
        ],
        "outputs": [
            {"name": "OUTPUT_0", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "OUTPUT_1", "datatype": "INT64", "shape": [-1, 1]},
        ],
    }


@pytest.mark.parametrize("rows", [1, 3, 4, 8])
@pytest.mark.parametrize("form", ["json", "binary"])
def test_answers_are_those_of_the_graph_to_the_last_bit(serving, form, rows):
    client, graphs = serving
    for model, inputs in {"network": [flow.randn(rows, 1, 8, 8)], "mixed": mixed_inputs(rows)}.items():
        body = document(*inputs) if form == "json" else binary(*inputs, parameters={"binary_data_output": True})
        found = outputs_of(infer(client, model, body))
        expected = graphs[model](*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert list(found) == [f"OUTPUT_{i}" for i in range(len(expected))]
        for y, z in zip(found.values(), expected, strict=True):
            assert y.dtype == z.numpy().dtype and (y == z.numpy()).all()


def test_forms_of_requests_and_responses(serving):
    client, graphs = serving
    inputs = mixed_inputs(2)
    y, index = (z.numpy() for z in graphs["mixed"](*inputs))
    flat = {"inputs": [entry(i, x, data=x.reshape(-1).tolist()) for i, x in enumerate(inputs)][::-1]}
    wanted = [{"name": "OUTPUT_1"}, {"name": "OUTPUT_0", "parameters": {"binary_data": True}}]
    response = infer(client, "mixed", flat | {"outputs": wanted, "id": "my request"})
    found = outputs_of(response)
    assert list(found) == ["OUTPUT_1", "OUTPUT_0"] and (found["OUTPUT_0"] == y).all()
    assert response.headers["content-type"] == "application/octet-stream" and (found["OUTPUT_1"] == index).all()
    head = json.loads(response.content[: int(response.headers["inference-header-content-length"])])
    assert (head["model_name"], head["model_version"], head["id"]) == ("mixed", "1", "my request")
    one = infer(client, "mixed/versions/1", document(*inputs, outputs=[{"name": "OUTPUT_0"}]))
    assert list(outputs_of(one)) == ["OUTPUT_0"] and one.headers["content-type"] == "application/json"


def test_half_precision_is_binary(serving):
    client, _ = serving
    x = flow.tensor([[1.5, -2.0, 3.0]], dtype=flow.float16)
    found = outputs_of(infer(client, "half", binary(x, parameters={"binary_data_output": True})))
    assert found["OUTPUT_0"].dtype == np.float16 and found["OUTPUT_0"].tolist() == [[1.5, 0.0, 3.0]]
    for body, why in ((binary(x), "OUTPUT_0: got FP16 in JSON"), (document(x), "INPUT_0: got FP16 in JSON")):
        response = infer(client, "half", body)
        assert response.status_code == 400 and response.json()["error"].startswith(f"half: {why}; expected binary")


def test_infinities_are_binary(serving):
    client, _ = serving
    x = [flow.tensor([[1, 2]]), flow.full((1, 3), flow.inf), flow.ones(1, 3) > 0]
    response = infer(client, "mixed", binary(*x))
    why = "mixed: OUTPUT_0: got infinities or NaN in JSON; expected binary_data: true"
    assert response.status_code == 400 and response.json()["error"] == why
    found = outputs_of(infer(client, "mixed", binary(*x, parameters={"binary_data_output": True})))
    assert_close(found["OUTPUT_0"], np.full((1, 3), np.inf, np.float32))


# batches


def counted(application, model):
    """The sizes of the batches that a model computes from now on."""
    sizes, saved = [], application.state.models[model].saved

    def call(tensors):
        sizes.append(tensors[0].shape[0])
        return saved(tensors)

    application.state.models[model].saved = Watched(saved, call)
    return sizes


class Watched:
    """A saved graph whose calls are made by a function."""

    def __init__(self, saved, call):
        self.saved, self.call = saved, call

    def __call__(self, tensors):
        return self.call(tensors)

    def __getattr__(self, name):
        return getattr(self.saved, name)


def test_requests_that_wait_are_joined(tmp_path):
    graph = Step(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    graph(flow.ones(4, 3))
    graph.save(tmp_path / "model", serve=True)
    config = read_config(tmp_path / "model")
    config.dynamic_batching.max_queue_delay_microseconds = 2_000_000
    write_config(tmp_path / "model", config)
    application = app(tmp_path)
    sizes = counted(application, "model")
    x = flow.randn(8, 3)
    parts = [x[:1], x[1:4], x[4:6], x[6:7], x[7:]]

    async def ask():
        transport = httpx2.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx2.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            posts = [client.post("/v2/models/model/infer", json=document(part)) for part in parts]
            return await asyncio.gather(*posts)

    found = [outputs_of(response)["OUTPUT_0"] for response in asyncio.run(ask())]
    assert sizes == [8] and [len(y) for y in found] == [1, 3, 2, 1, 1]
    assert (np.concatenate(found) == graph(x).numpy()).all()


def test_without_dynamic_batching_each_request_is_a_batch(tmp_path):
    graph = Step(nn.Linear(3, 2))
    graph(flow.ones(4, 3))
    graph.save(tmp_path / "model", serve=True)
    config = read_config(tmp_path / "model")
    config.ClearField("dynamic_batching")
    write_config(tmp_path / "model", config)
    application = app(tmp_path)
    sizes = counted(application, "model")
    with TestClient(application) as client, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(infer, client, "model", document(flow.ones(i % 3 + 1, 3))) for i in range(12)]
        assert all(outputs_of(one.result())["OUTPUT_0"].shape[1] == 2 for one in asked)
    assert sorted(sizes) == [1] * 4 + [2] * 4 + [3] * 4


def test_a_request_that_is_refused_leaves_the_batch_alone(serving):
    client, graphs = serving
    good, bad = mixed_inputs(1), mixed_inputs(1)
    bad[0] = flow.tensor([[0, 7]])
    expected = graphs["mixed"](*good)[0].numpy()
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(infer, client, "mixed", document(*(bad if i % 3 else good))) for i in range(24)]
        for i, one in enumerate(asked):
            if i % 3:
                assert one.result().status_code == 400 and "7" in one.result().json()["error"]
            else:
                assert_close(outputs_of(one.result())["OUTPUT_0"], expected)


def test_a_fault_of_the_server_is_answered_and_passes(tmp_path):
    graph = Step(nn.Linear(3, 2))
    graph(flow.ones(4, 3))
    graph.save(tmp_path / "model", serve=True)
    application, faults = app(tmp_path), ["disk on fire"]

    def call(tensors):
        if faults:
            raise OSError(faults.pop())
        return saved(tensors)

    saved = application.state.models["model"].saved
    application.state.models["model"].saved = Watched(saved, call)
    with TestClient(application, raise_server_exceptions=False) as client:
        assert infer(client, "model", document(flow.ones(1, 3))).status_code == 500
        assert_close(outputs_of(infer(client, "model", document(flow.ones(1, 3))))["OUTPUT_0"], graph(flow.ones(1, 3)))


def test_an_application_answers_in_one_event_loop_after_another(tmp_path):
    graph, x = Step(nn.Linear(3, 2)), flow.randn(1, 3)
    graph(flow.ones(4, 3))
    graph.save(tmp_path / "model", serve=True)
    application = app(tmp_path)
    for _ in range(3):
        with TestClient(application) as client:
            for _ in range(2):
                assert_close(outputs_of(infer(client, "model", document(x)))["OUTPUT_0"], graph(x))


def test_models_answer_while_another_one_computes(tmp_path):
    for name in ("slow", "quick"):
        graph = Step(nn.Linear(3, 2))
        graph(flow.ones(4, 3))
        graph.save(tmp_path / name, serve=True)
    application, let_go = app(tmp_path), threading.Event()
    saved = application.state.models["slow"].saved
    application.state.models["slow"].saved = Watched(saved, lambda x: let_go.wait(60) and saved(x))
    with TestClient(application) as client, ThreadPoolExecutor(2) as threads:
        slow = threads.submit(infer, client, "slow", document(flow.ones(1, 3)))
        assert outputs_of(infer(client, "quick", document(flow.ones(1, 3))))["OUTPUT_0"].shape == (1, 2)
        assert not slow.done()
        let_go.set()
        assert outputs_of(slow.result())["OUTPUT_0"].shape == (1, 2)


# models that cannot be loaded


def test_a_model_that_cannot_be_loaded_is_named_and_others_serve(tmp_path, capsys):
    save_models(tmp_path)
    (tmp_path / "half" / "1" / "model" / "graph.safetensors").write_bytes(b"nothing")
    (tmp_path / "network" / "config.pbtxt").write_text("max_batch_size: many")
    with TestClient(app(tmp_path)) as client:
        said = capsys.readouterr().err
        assert (
            "serve: half cannot be loaded: load: " in said and "serve: network cannot be loaded: serve: cannot" in said
        )
        assert client.get("/v2/models/mixed/ready").status_code == 200
        response = client.get("/v2/models/half/ready")
        assert response.status_code == 404
        assert response.json()["error"] == "half: there is no such model; expected one of ['mixed']"
    (tmp_path / "mixed" / "config.pbtxt").unlink()
    (tmp_path / "mixed" / "1" / "model" / "graph.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="half/1/model/graph.safetensors is not an intact safetensors file"):
        app(tmp_path)
    with pytest.raises(ArgumentError, match="serve: there is no folder .*none; expected a folder of folders"):
        app(tmp_path / "none")
