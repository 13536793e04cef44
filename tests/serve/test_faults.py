"""What is wrong with a request is said in a sentence, with a code of 400 to 499; the server goes on."""

import copy
import json
import random

import pytest
from compare import FRESH_SEED, assert_close
from served import binary, document, entry, mixed_inputs, outputs_of, save_models
from starlette.testclient import TestClient

import miniflow as flow
from miniflow.serve import app
from miniflow.serve.protocol import HEADER

X = flow.arange(64).to(flow.float32).reshape(1, 1, 8, 8)
PATH = "/v2/models/network/infer"


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    graphs = save_models(folder)
    with TestClient(app(folder)) as client:
        yield client, graphs


def send(client, body, headers=None, path=PATH):
    content = json.dumps(body) if isinstance(body, dict | list | str | int | None) else body
    return client.post(path, content=content, headers=headers)


def changed(**changes):
    return {"inputs": [entry(0, X, **changes)]}


def without(key):
    return {"inputs": [{name: value for name, value in entry(0, X).items() if name != key}]}


BODY, HEADERS = binary(X)
WRONG = {
    "no body": (b"", "a body that is not JSON of 0 bytes: Expecting value"),
    "not JSON": (b"INPUT_0=1", "a body that is not JSON of 9 bytes: Expecting value"),
    "not UTF-8": (b'{"inputs": "\xff"}', "not JSON of 15 bytes: 'utf-8' codec can't decode byte 0xff"),
    "cut": (json.dumps(document(X)).encode()[:-9], "a body that is not JSON of "),
    "nested too deep": (b"[" * 100_000, "not JSON of 100000 bytes: maximum recursion depth exceeded"),
    "a list": ([], "got []; expected an object with inputs"),
    "no inputs": ({}, "got inputs None; expected a list"),
    "inputs of another kind": ({"inputs": {"INPUT_0": 1}}, "got inputs {'INPUT_0': 1}; expected a list"),
    "an input that is no object": ({"inputs": [7]}, "got 7; expected an object with name"),
    "an input without name": ({"inputs": [{"shape": [1]}]}, "got name None; expected a string"),
    "a name that is no text": (changed(name=7), "got name 7; expected a string"),
    "another name": (changed(name="x"), "network: got the inputs {'x': 'FP32 [1, 1, 8, 8]'}; expected {'INPUT_0': "),
    "no input": ({"inputs": []}, "got the inputs {}; expected {'INPUT_0': 'FP32 [-1, 1, 8, 8]'}, -1 for 1 to 8 rows"),
    "twice": (document(X) | {"inputs": [entry(0, X)] * 2}, "two inputs 'INPUT_0'; expected names that differ"),
    "no datatype": (without("datatype"), "got datatype None; expected a string"),
    "an unknown datatype": (changed(datatype="FP8"), "INPUT_0 of datatype 'FP8'; expected one of BOOL, UINT8"),
    "another datatype": (
        changed(datatype="FP64"),
        "got the inputs {'INPUT_0': 'FP64 [1, 1, 8, 8]'}; expected",
    ),
    "no shape": (without("shape"), "got shape None; expected a list"),
    "a shape that no array has": (
        changed(shape=[0, 2**39, 2**39], data=[]),
        "INPUT_0 of shape [0, 549755813888, 549755813888]; expected a list",
    ),
    "a negative size": (changed(shape=[1, 1, -8, 8]), "INPUT_0 of shape [1, 1, -8, 8]; expected a list of at most"),
    "a size that is no integer": (
        changed(shape=[1, 1, 8.0, 8]),
        "expected a list of at most 32 sizes, each at least 1",
    ),
    "too many dims": (changed(shape=[1] * 33, data=[1.0]), "expected a list of at most 32 sizes, each at least 1"),
    "a size without end": (changed(shape=[2**70]), "INPUT_0; expected 1180591620717411303424 values of FP32"),
    "another shape": (
        changed(shape=[1, 1, 4, 16], data=[0] * 64),
        "got the inputs {'INPUT_0': 'FP32 [1, 1, 4, 16]'}; expected {'INPUT_0': 'FP32 [-1, 1, 8, 8]'}",
    ),
    "fewer numbers": (
        changed(data=[1.0]),
        "expected 64 values of FP32 in a list, or in lists of the shape [1, 1, 8, 8]",
    ),
    "lists of other lengths": (changed(data=[[1.0], [2.0, 3.0]]), "other data for INPUT_0; expected 64 values of FP32"),
    "text": (changed(data=["1"] * 64), "other data for INPUT_0; expected 64 values of FP32"),
    "true among numbers": (changed(data=[1.0] * 63 + [True]), "other data for INPUT_0; expected 64 values of FP32"),
    "truth alone": (changed(data=[True] * 64), "other data for INPUT_0; expected 64 values of FP32"),
    "null": (changed(data=[None] * 64), "other data for INPUT_0; expected 64 values of FP32"),
    "no data": (without("data"), "other data for INPUT_0; expected 64 values of FP32"),
    "numbers out of range": (changed(data=[1e39] * 64), "numbers out of the range of FP32 for INPUT_0"),
    "NaN": (changed(data=[float("nan")] * 64), "numbers out of the range of FP32 for INPUT_0"),
    "no rows": (changed(shape=[0, 1, 8, 8], data=[]), "INPUT_0 of shape [0, 1, 8, 8]; expected a list of at most 32"),
    "too many rows": (document(X.expand(9, 1, 8, 8)), "{'INPUT_0': 'FP32 [9, 1, 8, 8]'}; expected "),
    "parameters of another kind": (changed(parameters=[1]), "parameters [1]; expected an object"),
    "binary data that is missing": (
        changed(parameters={"binary_data_size": 256}),
        "got 256 bytes for INPUT_0, of 0; expected 256, of FP32 [1, 1, 8, 8]",
    ),
    "a size of another kind": (changed(parameters={"binary_data_size": "9"}), "size '9'; expected an integer"),
    "a choice of another kind": (
        document(X, parameters={"binary_data_output": 1}),
        "got binary_data_output 1; expected true or false",
    ),
    "outputs of another kind": (document(X, outputs="all"), "got outputs 'all'; expected a list"),
    "an unknown output": (document(X, outputs=[{"name": "y"}]), "the output 'y'; expected one of ['OUTPUT_0']"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(serving, name):
    client, _ = serving
    body, why = WRONG[name]
    response = send(client, body)
    assert response.status_code == 400 and why in response.json()["error"], response.text


@pytest.mark.parametrize(
    ("body", "header", "why"),
    [
        (BODY, None, "a body that is not JSON of "),
        (BODY, "x", "a body that is not JSON of x bytes: invalid literal for int()"),
        (BODY, "-1", "a body that is not JSON of -1 bytes"),
        (BODY, str(len(BODY) + 1), f"a body that is not JSON of {len(BODY) + 1} bytes"),
        (BODY, "9" * 5000, "bytes: Exceeds the limit (4300 digits) for integer string conversion"),
        (json.dumps(document(X)), "9999", "header-content-length 9999; expected at most the"),
        (BODY[:-4], HEADERS[HEADER], "256 bytes for INPUT_0, of 252; expected 256"),
        (BODY + b"1234", HEADERS[HEADER], "4 bytes that belong to no input; expected as many as binary_data_size says"),
        (
            BODY.replace(b"256", b"252"),
            HEADERS[HEADER],
            "252 bytes for INPUT_0, of 256; expected 256, of FP32 [1, 1, 8, 8]",
        ),
        (BODY.replace(b"256", b"-25"), HEADERS[HEADER], "got -25 bytes for INPUT_0, of 256; expected 256"),
    ],
)
def test_binary_data_that_does_not_fit(serving, body, header, why):
    client, _ = serving
    response = send(client, body, None if header is None else {HEADER: header})
    assert response.status_code == 400 and why in response.json()["error"], response.text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({0: {"data": [[1, 7]]}}, "index"),
        ({0: {"data": [[1, -1]]}}, "index"),
        ({0: {"data": [[1, 2**70]]}}, "numbers out of the range of INT64 for INPUT_0"),
        ({0: {"data": [[1, True]]}}, "other data for INPUT_0; expected 2 values of INT64"),
        ({2: {"data": [[True, 0, True]]}}, "other data for INPUT_2; expected 3 values of BOOL"),
        ({0: {"data": [[1, 2.0]]}}, "other data for INPUT_0; expected 2 values of INT64"),
        ({0: {"datatype": "INT8", "data": [[1, 200]]}}, "numbers out of the range of INT8 for INPUT_0"),
        ({2: {"data": [[1, 0, 1]]}}, "other data for INPUT_2; expected 3 values of BOOL"),
        ({1: {"shape": [2, 3], "data": [0.5] * 6}}, "'INPUT_1': 'FP32 [2, 3]'"),
    ],
)
def test_numbers_that_a_model_cannot_take(serving, changes, why):
    client, _ = serving
    body = {"inputs": [entry(i, x, **changes.get(i, {})) for i, x in enumerate(mixed_inputs(1))]}
    response = send(client, body, path="/v2/models/mixed/infer")
    assert response.status_code == 400 and why in response.json()["error"], response.text


def test_paths_and_methods(serving):
    client, _ = serving
    body = json.dumps(document(X))
    for path in ("/v2/models/other/infer", "/v2/models/network/versions/2/infer", "/v2/models/network/infer/", "/x"):
        response = client.post(path, content=body, follow_redirects=False)
        assert response.status_code in (307, 404), path
    assert client.get("/v2/models/other").json()["error"].startswith("serve: there is no model other; expected one of ")
    assert client.get(PATH).status_code == 405 and client.delete(PATH).json() == {"error": "Method Not Allowed"}


def test_bodies_that_are_too_large(serving):
    client, _ = serving
    sent = []

    def pieces():
        for _ in range(1000):
            sent.append(1 << 16)
            yield b" " * sent[-1]

    response = client.post(PATH, content=pieces())
    assert response.status_code == 413 and "the body is too large; expected at most" in response.json()["error"]


VALUES = [
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**70,
    -(2**63),
    "",
    "INPUT_0",
    "FP32",
    [],
    [[]],
    {},
    [1, [2]],
    "\ud800",
    "é" * 300,
]


def mutated(rng, body):
    """A copy of a JSON value in which some places hold other values, are missing, or are twice there."""
    body = copy.deepcopy(body)
    for _ in range(rng.choice([1, 1, 2, 4])):
        place = body
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = rng.choice(list(keys)[:50])
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
                place = place[key]
                continue
            action = rng.random()
            if action < 0.6:
                place[key] = copy.deepcopy(rng.choice(VALUES))
            elif action < 0.8:
                del place[key]
            elif isinstance(place, list):
                place.insert(key, copy.deepcopy(place[key]))
            else:
                place[rng.choice(["name", "data", "parameters", "outputs", "binary_data_size"])] = place.pop(key)
            break
    return body


def damaged(rng, content):
    """Bytes of which some are others, missing, or twice there."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 2, 8])):
        at = rng.randrange(len(content) + 1)
        end = min(len(content), at + rng.choice([1, 1, 3, 40]))
        content[at:end] = rng.choice([b"", content[at:end] * 2, bytes(rng.randrange(256) for _ in range(end - at))])
    return bytes(content)


@pytest.mark.parametrize("seed", [1, FRESH_SEED])
def test_random_mutations_of_requests(serving, seed):
    """Each is answered, or refused with a sentence; 1,000 in all."""
    client, graphs = serving
    rng, codes = random.Random(seed), []
    for _ in range(500):
        model, inputs = rng.choice([("network", [X]), ("mixed", mixed_inputs(2)), ("half", [flow.ones(1, 3).half()])])
        options = rng.choice(
            [{}, {"outputs": [{"name": "OUTPUT_0", "parameters": {"binary_data": True}}]}, {"id": "1"}]
        )
        if rng.random() < 0.5:
            content, headers = json.dumps(mutated(rng, document(*inputs, **options))).encode(), {}
        else:
            content, headers = binary(*inputs, **options)
            if rng.random() < 0.2:
                headers = {HEADER: rng.choice(["", "0", "1", "-7", "1e3", " 12", "99999", "٣".encode()])}
        if not headers or rng.random() < 0.8:
            content = damaged(rng, content) if rng.random() < 0.5 else content
        response = send(client, content, headers, f"/v2/models/{model}/infer")
        codes.append(response.status_code)
        assert response.status_code == 200 or 400 <= response.status_code < 500, (seed, content, headers)
        assert response.status_code == 200 or len(response.json()["error"]) > 10
    assert 20 < codes.count(200) < 480 and codes.count(400) > 100
    assert_close(outputs_of(send(client, document(X)))["OUTPUT_0"], graphs["network"](X))
