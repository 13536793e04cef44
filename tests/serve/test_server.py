"""`python -m miniflow.serve MODELS --engine python` in a process of its own."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from served import document, save_models

import miniflow as flow
from miniflow.errors import ArgumentError
from miniflow.serve import server
from miniflow.serve.__main__ import default_engine, free_address, main
from miniflow.serve.server import find_triton

X = flow.arange(64).to(flow.float32).reshape(1, 1, 8, 8)


@contextmanager
def serving(folder, *options):
    """The process, and the lines that it printed until it was ready."""
    command = [sys.executable, "-m", "miniflow.serve", str(folder), "--engine", "python", "--http-port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(120, process.kill)
    killer.start()
    try:
        lines = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        yield process, lines
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


def post(url, body):
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), method="POST")) as response:
        return json.loads(response.read())


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_answers_and_ends(tmp_path, end):
    graphs = save_models(tmp_path)
    (tmp_path / "half" / "1" / "model" / "graph.safetensors").write_bytes(b"nothing")
    with serving(tmp_path) as (process, lines):
        url = re.search(r"python listens on (http://127\.0\.0\.1:\d+); Ctrl-C ends it\.", lines[-1])[1]
        examples = [line for line in lines if "curl" in line]
        assert len(examples) == 2 and lines[0] == "mixed answers, for example:\n"
        found = json.loads(subprocess.run(examples[1], shell=True, capture_output=True, check=True).stdout)
        assert found["outputs"][0]["data"] == graphs["network"](flow.zeros(1, 1, 8, 8)).reshape(-1).tolist()
        address = url.removeprefix("http://").split(":")
        with slow_client(address), cut_off_client(address):
            found = post(f"{url}/v2/models/network/infer", document(X))
            assert (np.float32(found["outputs"][0]["data"]) == graphs["network"](X).numpy().reshape(-1)).all()
            process.send_signal(end)
            out, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and out == ""
        assert "serve: half cannot be loaded" in errors and "Traceback" not in errors


@contextmanager
def slow_client(address):
    """One that never sends the end of its request."""
    with socket.create_connection(address) as connection:
        connection.sendall(b"POST /v2/models/network/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        yield


@contextmanager
def cut_off_client(address):
    """One that goes in the middle of its request, and one that does not speak HTTP."""
    for content in (
        b"POST /v2/models/network/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
        b"\x16\x03\x01\0",
    ):
        with socket.create_connection(address) as connection:
            connection.sendall(content)
    yield


def test_addresses_that_hosts_have():
    for host, expected in (("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("", "0.0.0.0")):
        found, port = free_address(host, 0)
        assert found == expected and 0 < port < 2**16 and free_address(host, port) == (found, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_addresses_that_cannot_be_had(tmp_path, capsys, host):
    save_models(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([str(tmp_path), "--engine", "python", "--http-address", host, "--http-port", str(port)]) == 1
    assert f"serve: got {host}:{port}; expected an address that is free: " in capsys.readouterr().err


def test_ports_that_there_are_not(tmp_path, capsys):
    save_models(tmp_path)
    assert main([str(tmp_path), "--engine", "python", "--http-port", "65536"]) == 1
    assert "serve: got 127.0.0.1:65536; expected an address that is free: " in capsys.readouterr().err


def test_a_graph_that_cannot_be_prepared_is_named_and_others_are_prepared(tmp_path, capsys):
    save_models(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "graph.safetensors").write_bytes(b"nothing")
    (tmp_path / "network" / "1" / "model.py").unlink()
    assert main(["prepare", str(tmp_path)]) == 1
    assert "broken" in capsys.readouterr().err and (tmp_path / "network" / "1" / "model.py").exists()


def test_folders_without_models(tmp_path, capsys):
    for command in (["--engine", "python"], []):
        assert main([str(tmp_path), *command]) == main(["prepare", str(tmp_path)]) == 1
        told = capsys.readouterr().err
        assert told.count(f"serve: {tmp_path} holds no models; expected a folder of folders, one for each model: ") == 2
    assert main([f"{tmp_path}/none/", "--engine", "python"]) == 1
    assert f"serve: there is no folder {tmp_path}/none/; expected a folder of" in capsys.readouterr().err


def test_without_the_extra(tmp_path, capsys, monkeypatch):
    save_models(tmp_path)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "miniflow.serve.application")
    assert main([str(tmp_path), "--engine", "python"]) == 1
    assert 'uvicorn is not installed; expected it: pip install "miniflow-edu[serve]"' in capsys.readouterr().err


def test_without_triton_python_answers(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert default_engine() == "python"
    assert re.fullmatch(r"serve: found no tritonserver; .*install.*\. The engine python .*\n", capsys.readouterr().err)
    save_models(tmp_path)
    assert main([str(tmp_path), "--engine", "triton"]) == 1
    assert "serve: found no tritonserver" in capsys.readouterr().err


def test_triton_that_cannot_run_this_python(monkeypatch, tmp_path, capsys):
    """First the program that runs models in this version of Python is missing, then its library."""
    program = tmp_path / "triton" / "bin" / "tritonserver"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(ArgumentError, match=r"cannot run .*: there is no triton_python_backend_stub in .*/triton/"):
        find_triton()
    stub = tmp_path / "triton" / "backends" / "python" / "triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    stub.touch()
    monkeypatch.setattr(server, "LIBPYTHON", "libpython0.0.so")
    with pytest.raises(ArgumentError, match=r"there is no libpython0\.0\.so in "):
        find_triton()
    assert default_engine() == "python" and "libpython0.0.so" in capsys.readouterr().err
