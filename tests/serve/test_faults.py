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
from miniflow.serve.protocol import HEADER, field

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
    "no body": (b"", "got a body that is not JSON of 0 bytes: Expecting value"),
    "not JSON": (b"INPUT_0=1", "got a body that is not JSON of 9 bytes: Expecting value"),
    "not UTF-8": (
        b'{"inputs": "\xff"}',
        "got a body that is not JSON of 15 bytes: 'utf-8' codec can't decode byte 0xff",
    ),
    "cut": (json.dumps(document(X)).encode()[:-9], "got a body that is not JSON of "),
    "nested too deep": (
        b"[" * 100_000,
        "got a body that is not JSON of 100000 bytes: maximum recursion depth exceeded",
    ),
    "a list": ([], "got []; expected an object with inputs"),
    "no inputs": ({}, "got inputs None; expected a JSON array"),
    "inputs of another kind": ({"inputs": {"INPUT_0": 1}}, "got inputs {'INPUT_0': 1}; expected a JSON array"),
    "an input that is no object": ({"inputs": [7]}, "inputs[0]: got 7; expected an object with name"),
    "an input without name": ({"inputs": [{"shape": [1]}]}, "inputs[0]: got name None; expected a JSON string"),
    "a name that is no text": (changed(name=7), "inputs[0]: got name 7; expected a JSON string"),
    "another name": (changed(name="x"), "got the inputs {'x': 'FP32 [1, 1, 8, 8]'}; expected {'INPUT_0': "),
    "no input": ({"inputs": []}, "got the inputs {}; expected {'INPUT_0': 'FP32 [-1, 1, 8, 8]'}, -1 for 1 to 8 rows"),
    "twice": ({"inputs": [entry(0, X)] * 2}, "got two inputs 'INPUT_0'; expected names that differ"),
    "no datatype": (without("datatype"), "INPUT_0: got datatype None; expected a JSON string"),
    "an unknown datatype": (changed(datatype="FP8"), "INPUT_0: got datatype 'FP8'; expected one of BOOL, UINT8"),
    "another datatype": (changed(datatype="FP64"), "got the inputs {'INPUT_0': 'FP64 [1, 1, 8, 8]'}; expected"),
    "no shape": (without("shape"), "INPUT_0: got shape None; expected a JSON array"),
    "a shape that no array has": (
        changed(shape=[0, 2**39, 2**39], data=[]),
        "INPUT_0: got shape [0, 549755813888, 549755813888]; expected a list of at most 32 sizes, each at least 1",
    ),
    "a negative size": (changed(shape=[1, 1, -8, 8]), "INPUT_0: got shape [1, 1, -8, 8]; expected a list of at most"),
    "a size that is no integer": (
        changed(shape=[1, 1, 8.0, 8]),
        "INPUT_0: got shape [1, 1, 8.0, 8]; expected a list of at most",
    ),
    "too many dims": (changed(shape=[1] * 33, data=[1.0]), "INPUT_0: got shape [1, 1, 1, "),
    "a size without end": (
        changed(shape=[2**70]),
        "INPUT_0: got data of shape [1, 1, 8, 8]; expected a list of 1180591620717411303424 values of FP32, or lists",
    ),
    "another shape": (
        changed(shape=[1, 1, 4, 16], data=[0] * 64),
        "got the inputs {'INPUT_0': 'FP32 [1, 1, 4, 16]'}; expected {'INPUT_0': 'FP32 [-1, 1, 8, 8]'}",
    ),
    "fewer numbers": (
        changed(data=[1.0] * 63),
        "INPUT_0: got data of shape [63]; expected a list of 64 values of FP32, or lists of shape [1, 1, 8, 8]",
    ),
    "more numbers": (changed(data=[1.0] * 65), "INPUT_0: got data of shape [65]; expected a list of 64 values of FP32"),
    "lists of another shape": (
        changed(data=[[1.0] * 16] * 4),
        "INPUT_0: got data of shape [4, 16]; expected a list of 64 values of FP32, or lists of shape [1, 1, 8, 8]",
    ),
    "lists of other lengths": (changed(data=[[1.0], [2.0, 3.0]]), "INPUT_0: got data of shape [2]; expected a list of"),
    "a list among numbers": (changed(data=[[1.0], *[1.0] * 63]), "INPUT_0: got [1.0] at data[0]; expected a JSON "),
    "text": (changed(data=["1"] * 64), "INPUT_0: got '1' at data[0]; expected a JSON number for FP32"),
    "true among numbers": (
        changed(data=[1.0] * 63 + [True]),
        "INPUT_0: got True at data[63]; expected a JSON number for FP32",
    ),
    "true in lists": (
        changed(data=(X != 9).tolist()),
        "INPUT_0: got True at data[0][0][0][0]; expected a JSON number for FP32",
    ),
    "truth alone": (changed(data=[True] * 64), "INPUT_0: got True at data[0]; expected a JSON number for FP32"),
    "null": (changed(data=[None] * 64), "INPUT_0: got None at data[0]; expected a JSON number for FP32"),
    "an object": (changed(data={"0": 1.0}), "INPUT_0: got data {'0': 1.0}; expected a list of 64 values of FP32"),
    "no data": (without("data"), "INPUT_0: got data None; expected a list of 64 values of FP32"),
    "a number out of range": (
        changed(data=[3.4028235e38] * 9 + [-1e39] * 55),
        "INPUT_0: got -1e+39 at data[9]; expected a JSON number for FP32",
    ),
    "an integer out of range": (
        changed(data=[10**400] * 64),
        f"INPUT_0: got 1{'0' * 39} at data[0]; expected a JSON number for FP32",
    ),
    "NaN": (changed(data=[float("nan")] * 64), "INPUT_0: got nan at data[0]; expected a JSON number for FP32"),
    "no rows": (changed(shape=[0, 1, 8, 8], data=[]), "INPUT_0: got shape [0, 1, 8, 8]; expected a list of at most 32"),
    "too many rows": (document(X.expand(9, 1, 8, 8)), "got the inputs {'INPUT_0': 'FP32 [9, 1, 8, 8]'}; expected "),
    "parameters of another kind": (changed(parameters=[1]), "INPUT_0: got parameters [1]; expected a JSON object"),
    "binary data that is missing": (
        changed(parameters={"binary_data_size": 256}),
        "INPUT_0: got 256 bytes, of the 0 that are left; expected 256, of FP32 [1, 1, 8, 8]",
    ),
    "a size of another kind": (
        changed(parameters={"binary_data_size": "9"}),
        "INPUT_0: got binary_data_size '9'; expected a JSON integer",
    ),
    "a choice of another kind": (
        document(X, parameters={"binary_data_output": 1}),
        "got binary_data_output 1; expected a JSON boolean",
    ),
    "a choice of another kind for an output": (
        document(X, outputs=[{"name": "OUTPUT_0", "parameters": {"binary_data": 1}}]),
        "OUTPUT_0: got binary_data 1; expected a JSON boolean",
    ),
    "outputs of another kind": (document(X, outputs="all"), "got outputs 'all'; expected a JSON array"),
    "an output without name": (document(X, outputs=[{}]), "outputs[0]: got name None; expected a JSON string"),
    "an unknown output": (document(X, outputs=[{"name": "y"}]), "got the output 'y'; expected one of ['OUTPUT_0']"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(serving, name):
    client, _ = serving
    body, why = WRONG[name]
    response = send(client, body)
    assert response.status_code == 400 and response.json()["error"].startswith(f"network: {why}"), response.text


@pytest.mark.parametrize(
    ("body", "header", "why"),
    [
        (BODY, None, "got a body that is not JSON of "),
        (BODY, "x", "got a body that is not JSON of x bytes: invalid literal for int()"),
        (BODY, "-1", "got a body that is not JSON of -1 bytes"),
        (BODY, str(len(BODY) + 1), f"got a body that is not JSON of {len(BODY) + 1} bytes"),
        (BODY, "9" * 5000, f"got a body that is not JSON of {'9' * 40} bytes: Exceeds the limit (4300 digits)"),
        (json.dumps(document(X)), "9999", "got inference-header-content-length 9999; expected at most the"),
        (BODY[:-4], HEADERS[HEADER], "INPUT_0: got 256 bytes, of the 252 that are left; expected 256, of FP32"),
        (BODY + b"1234", HEADERS[HEADER], "got 4 bytes that belong to no input; expected as many as binary_data_size"),
        (
            BODY.replace(b"256", b"252"),
            HEADERS[HEADER],
            "INPUT_0: got 252 bytes, of the 256 that are left; expected 256, of FP32 [1, 1, 8, 8]",
        ),
        (BODY.replace(b"256", b"-25"), HEADERS[HEADER], "INPUT_0: got -25 bytes, of the 256 that are left; expected"),
    ],
)
def test_binary_data_that_does_not_fit(serving, body, header, why):
    client, _ = serving
    response = send(client, body, None if header is None else {HEADER: header})
    assert response.status_code == 400 and response.json()["error"].startswith(f"network: {why}"), response.text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({0: {"data": [[1, 7]]}}, "embedding: index 7 is out of range for dim 0 of size 7 "),
        ({0: {"data": [[1, -1]]}}, "embedding: index -1 is out of range for dim 0 of size 7 "),
        ({0: {"data": [[1, 2**70]]}}, f"INPUT_0: got {2**70} at data[0][1]; expected a JSON integer for INT64"),
        ({0: {"data": [1, True]}}, "INPUT_0: got True at data[1]; expected a JSON integer for INT64"),
        ({0: {"data": [[1, 2.0]]}}, "INPUT_0: got 2.0 at data[0][1]; expected a JSON integer for INT64"),
        (
            {0: {"datatype": "INT8", "data": [[1, 200]]}},
            "INPUT_0: got 200 at data[0][1]; expected a JSON integer for INT8",
        ),
        (
            {0: {"datatype": "UINT8", "data": [[-1, 2]]}},
            "INPUT_0: got -1 at data[0][0]; expected a JSON integer for UINT8",
        ),
        ({2: {"data": [[True, 0, True]]}}, "INPUT_2: got 0 at data[0][1]; expected a JSON boolean for BOOL"),
        ({2: {"data": [1, 0, 1]}}, "INPUT_2: got 1 at data[0]; expected a JSON boolean for BOOL"),
        ({1: {"shape": [2, 3], "data": [0.5] * 6}}, "got the inputs {'INPUT_0': 'INT64 [1, 2]', 'INPUT_1': 'FP32 [2"),
    ],
)
def test_numbers_that_a_model_cannot_take(serving, changes, why):
    client, _ = serving
    body = {"inputs": [entry(i, x, **changes.get(i, {})) for i, x in enumerate(mixed_inputs(1))]}
    response = send(client, body, path="/v2/models/mixed/infer")
    assert response.status_code == 400 and response.json()["error"].startswith(f"mixed: {why}"), response.text


def test_paths_and_methods(serving):
    client, _ = serving
    body = json.dumps(document(X))
    for path in ("/v2/models/other/infer", "/v2/models/network/versions/2/infer", "/v2/models/network/infer/", "/x"):
        response = client.post(path, content=body, follow_redirects=False)
        assert response.status_code in (307, 404), path
    told = "other: there is no such model; expected one of ['half', 'mixed', 'network']"
    assert client.get("/v2/models/other").json() == {"error": told}
    for version in ("2", "x"):
        told = f"network: got version {version}; expected 1, which is served"
        for path in ("", "/ready"):
            assert client.get(f"/v2/models/network/versions/{version}{path}").json() == {"error": told}
        assert client.post(f"/v2/models/network/versions/{version}/infer", content=body).json() == {"error": told}
    assert client.get(PATH).status_code == 405 and client.delete(PATH).json() == {"error": "Method Not Allowed"}


def test_bodies_that_are_too_large(serving):
    client, _ = serving
    sent = []

    def pieces():
        for _ in range(1000):
            sent.append(1 << 16)
            yield b" " * sent[-1]

    response = client.post(PATH, content=pieces())
    assert response.status_code == 413
    assert response.json()["error"].startswith("network: the body is too large; expected at most ")


def test_what_is_right_is_not_written_out():
    """A sentence about a whole image takes longer than its answer."""
    written = []

    class Number:
        def __repr__(self):
            written.append(self)
            return "1"

    numbers = [Number() for _ in range(10_000)]
    assert field("model", {"inputs": [{"data": numbers}]}, "inputs", list) == [{"data": numbers}]
    assert field("model", {"name": "x", "data": numbers}, "name", str) == "x"
    assert not written


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
