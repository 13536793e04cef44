"""`python -m miniflow`: what it prints, draws and saves, and how it refuses and stops."""

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import miniflow as flow
from miniflow import nn, warm

program = importlib.import_module("miniflow.__main__")
ROOT = Path(__file__).resolve().parent.parent


def run(*arguments, cwd, timeout=300):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "miniflow", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.slow
def test_default_run_reaches_96_percent(tmp_path):
    result = run(cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    accuracy = float(re.search(r"test accuracy ([\d.]+) % on 1,000 digits", result.stdout)[1])
    assert accuracy >= 96
    picture = Path(re.search(r"^picture: (.*)$", result.stdout, re.MULTILINE)[1])
    assert picture == tmp_path / "miniflow_lenet.png" and png_size(picture) == (1300, 598)
    assert "LeNet with 1,663,370 parameters, 4,000 digits" in result.stdout
    for epoch in range(1, 6):
        assert re.search(rf"epoch {epoch}/5: 100%.*63/63.*loss [\d.]+, accuracy [\d.]+%; test loss", result.stderr)
    assert "Error" not in result.stderr and "Warning" not in result.stderr


@pytest.mark.slow
def test_equal_seeds_give_equal_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def losses(seed):
        history = program.History()
        program.train(program.parse(["--model", "mlp", "--epochs", "2", "--seed", str(seed)]), history)
        return history.train, history.test, history.predicted

    first, second, other = losses(3), losses(3), losses(4)
    assert first[0] == second[0] and first[1] == second[1]
    np.testing.assert_array_equal(first[2], second[2])
    assert len(first[0]) == 126 and len(first[1]) == 2 and first[0][-1] < 0.7 < first[0][0]
    assert first[0][0] != other[0][0]


def test_saved_weights_give_the_reported_accuracy(tmp_path):
    path = tmp_path / "mlp.safetensors"
    result = run("--model", "mlp", "--epochs", 1, "--batch-size", 100, "--lr", 0.01, "--save", path, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"weights: {path}" in result.stdout and "1/1: 100%" in result.stderr and "40/40" in result.stderr
    model = flow.vision.models.MLP()
    model.load_state_dict(flow.load(path))
    images, labels = flow.data.mnist("test").tensors
    with flow.no_grad():
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    assert f"test accuracy {100 * accuracy:.1f} %" in result.stdout
    assert accuracy > 0.85


@pytest.mark.slow
def test_training_through_a_graph(tmp_path, monkeypatch):
    result = run("--graph", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "on cpu, as an nn.Graph" in result.stdout and "Warning" not in result.stderr
    assert float(re.search(r"test accuracy ([\d.]+) % on 1,000 digits", result.stdout)[1]) >= 96


@pytest.mark.slow
def test_a_graph_trains_as_eager_code_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def losses(*arguments):
        history = program.History()
        program.train(program.parse(["--model", "mlp", "--epochs", "1", *arguments]), history)
        return np.array(history.train), np.array(history.test)

    for graph, eager in zip(losses("--graph"), losses(), strict=True):
        np.testing.assert_allclose(graph, eager, rtol=1e-3)


@pytest.mark.slow
def test_training_through_cuda_kernels(tmp_path):
    result = run("--model", "mlp", "--device", "cuda", "--epochs", 1, "--batch-size", 100, "--lr", 0.01, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "on cuda:0, emulated by the CPU" in result.stdout or not flow.cuda.is_emulated()
    assert float(re.search(r"test accuracy ([\d.]+) % on 1,000 digits", result.stdout)[1]) > 85


def test_help_lists_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    for option in "--epochs --batch-size --lr --device --seed --model --graph --save --help".split():
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "2.5"], "argument --epochs: invalid int value: '2.5'"),
        (["--batch-size", "x"], "argument --batch-size: invalid int value: 'x'"),
        (["--model", "vgg"], "argument --model: invalid choice: 'vgg'"),
        (["--save", "/nowhere/model"], "cannot write /nowhere/model: "),
        (["--save", "."], "cannot write .: it is a folder"),
        (["--save"], "argument --save: expected one argument"),
        (["--epoch", "1"], "unrecognized arguments: --epoch"),
        (["extra"], "unrecognized arguments: extra"),
    ],
)
def test_a_bad_option_ends_with_code_2_and_says_why(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        program.main(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == 2
    last = captured.err.splitlines()[-1]
    assert not captured.out and last.startswith("python -m miniflow: error: ") and message in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "got T_max=0; expected a number above 0"),
        (["--batch-size", "0"], "got batch_size=0; expected an integer above zero"),
        (["--lr", "-1"], "lr=-1.0"),
        (["--lr", "nan"], "lr=nan"),
        (["--seed", str(2**70)], "manual_seed: got "),
        (["--device", "tpu"], "device 'tpu'"),
        (["--device", "cuda:99"], "device 'cuda:99' does not exist"),
    ],
)
def test_a_value_that_is_refused_is_one_line_and_code_1(arguments, message, capsys):
    assert program.main(["--model", "mlp", *arguments]) == 1
    captured = capsys.readouterr()
    assert not captured.out and captured.err.count("\n") == 1
    assert captured.err.startswith("python -m miniflow: error: ") and message in captured.err


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program.os, "access", lambda path, mode: False)
    with pytest.raises(SystemExit) as stopped:
        program.main([])
    assert stopped.value.code == 2
    assert f"cannot write {tmp_path / 'miniflow_lenet.png'}: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_diverging_run_says_so(tmp_path):
    result = run("--model", "mlp", "--lr", "1e30", cwd=tmp_path)
    assert result.returncode == 1
    assert re.search(
        r"error: the loss became (nan|inf) in step \d+: try a smaller --lr; nothing was saved\n$", result.stderr
    )
    assert "Traceback" not in result.stderr and "Warning" not in result.stderr


def interrupted(arguments, when, cwd):
    """Start the program, send it Ctrl-C once `when` is in its output, and return its exit code and its output."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "miniflow", *map(str, arguments)]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background inherits "ignore"
    )
    try:
        output = b""
        while not re.search(when, output):
            chunk = process.stdout.read(64)
            assert chunk, output.decode()
            output += chunk
        process.send_signal(signal.SIGINT)
        output += process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.wait()
    return process.returncode, output.decode()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C cannot be sent to one process here")
def test_interrupt_says_what_was_saved(tmp_path):
    path = tmp_path / "mlp.safetensors"
    code, output = interrupted(["--model", "mlp", "--epochs", 2000, "--save", path], rb"epoch 3/2000", tmp_path)
    assert code == 130
    assert "Traceback" not in output
    saved = re.search(r"interrupted: (.*) holds the weights after epoch (\d+)\n$", output)
    assert saved[1] == str(path) and int(saved[2]) >= 2
    flow.vision.models.MLP().load_state_dict(flow.load(path))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C cannot be sent to one process here")
def test_interrupt_before_anything_was_saved(tmp_path):
    code, output = interrupted(["--model", "mlp", "--epochs", 2000], rb"epoch 1/2000", tmp_path)
    assert code == 130
    assert "Traceback" not in output and output.endswith("interrupted: nothing was saved\n")
    assert not list(tmp_path.iterdir())


def test_the_bar_says_that_a_kernel_is_compiled(tmp_path, monkeypatch, capsys):
    def epoch(model, step, loader, bar):
        numba.njit(lambda x: x + 1)(1)
        return [1.0]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "train_epoch", epoch)
    monkeypatch.setattr(program, "evaluate", lambda model, digits: (1.0, np.zeros(1000, np.int64)))
    program.train(program.parse(["--model", "mlp", "--epochs", "1"]), program.History())
    assert f"0/63 [00:00<?, ?step/s, compiling {__name__}.<lambda> (first run only)]" in capsys.readouterr().err


@pytest.mark.slow
def test_the_bar_says_so_in_the_first_run_only(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    arguments = ["--model", "mlp", "--epochs", 1, "--batch-size", 2000]
    first, second = (run(*arguments, cwd=tmp_path).stderr for _ in range(2))
    assert re.search(r"0/2 \[00:00<\?, \?step/s, compiling backends\.cpu\.\S+ \(first run only\)\]", first)
    assert "compiling" not in first[first.index("2/2") :] and "compiling" not in second


def test_warm_names_what_it_compiles(monkeypatch, capsys):
    made = []

    class Alone(nn.Linear):
        def forward(self, x):
            made.append(x.shape)
            numba.njit(lambda x: x + 1)(1)
            return super().forward(x)

    monkeypatch.setattr(warm, "NETWORKS", {"one layer": (lambda: Alone(3, 10), lambda: flow.randn(4, 3))})
    monkeypatch.setattr(warm, "OPTIMIZERS", ("SGD",))
    assert program.main(["warm"]) == 0
    shown = capsys.readouterr()
    assert "one layer:   0%" in shown.err and f"compiling {__name__}.<lambda> (first run only)" in shown.err
    assert "SGD: 100%" in shown.err and re.search(r"\d+ kernels compiled in \d+ s; they are in /", shown.err)
    assert len(made) == 3 and shown.out == ""  # op by op, while the graph is recorded, and for the prediction


@pytest.mark.slow
def test_after_warm_a_network_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    first = run("warm", cwd=tmp_path, timeout=1200).stderr
    assert int(re.search(r"(\d+) kernels compiled", first)[1]) > 30
    assert "compiling" not in run("--model", "lenet", "--graph", "--epochs", 1, cwd=tmp_path).stderr
    assert "0 kernels compiled" in run("warm", cwd=tmp_path).stderr
