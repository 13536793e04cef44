"""NVIDIA Triton for saved graphs: finds it, gives its Python backend what it needs, starts it, and ends it.

The `tritonserver` on the PATH is used, as in NVIDIA's container, else the one that the package nvidia-pytriton brings.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from miniflow.errors import ArgumentError, WorkerError
from miniflow.serve.example import example

STUB = "triton_python_backend_stub"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBPYTHON = f"libpython{PYTHON}.so.1.0"
# OneFlow's configs have `backend: "oneflow"`. A backend that is a model.py runs in Triton's Python backend.
ONEFLOW = 'from miniflow.serve.triton import TritonPythonModel\n\n__all__ = ["TritonPythonModel"]\n'
CLOSED = "shared-memory,model-repository,trace,logging"
EXIT_SECONDS = 5  # for requests that are being answered


class Triton(NamedTuple):
    """An installation of Triton that can run this Python.

    Attributes:
        server: the program.
        python: the folder of its Python backend.
        stub: the program that runs a model in this version of Python.
        libpython: the shared library of this Python, which the stub loads.
        libraries: the folder of others that it loads; need not exist.
    """

    server: Path
    python: Path
    stub: Path
    libpython: Path
    libraries: Path


def find_triton() -> Triton:
    """The installation to use.

    Raises:
        ArgumentError: if there is none, or none for this Python; says what to install.
    """
    found, package = shutil.which("tritonserver"), find_spec("pytriton")
    if found is None and package is not None:
        found = Path(package.origin).parent / "tritonserver" / "bin" / "tritonserver"
    if found is None:
        raise ArgumentError(
            "serve: found no tritonserver; expected one on the PATH, as in NVIDIA's container: install it, or run "
            "`pip install --no-deps nvidia-pytriton==0.7.0`"
        )
    root = Path(found).resolve().parents[1]
    stubs = [root / "python_backend_stubs" / PYTHON / STUB, root / "backends" / "python" / STUB]
    libraries = [Path(folder, LIBPYTHON) for folder in (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib")]
    chosen = [next((path for path in paths if path.exists()), None) for paths in (stubs, libraries)]
    for path, paths in zip(chosen, (stubs, libraries), strict=True):
        if path is None:
            raise ArgumentError(
                f"serve: {found} cannot run {sys.executable}: there is no {' and no '.join(map(str, paths))}; expected "
                "a version of Python that Triton knows, with its shared library: use another Python"
            )
    return Triton(Path(found), root / "backends" / "python", *chosen, root.parents[1] / "nvidia_pytriton.libs")


def layout(scratch: Path, triton: Triton, models: Sequence[Path]) -> dict[str, str]:
    """Put what Triton is to see into a folder: the models, the backends, and this Python with its packages.

    The stub ignores PYTHONPATH; it runs in the virtual environment that is first on the PATH.

    Returns:
        the environment to start Triton in.
    """
    for model in models:  # their folders are not the user's: see `supervise`
        (scratch / "models" / model.name).mkdir(parents=True)
        for path in model.iterdir():
            (scratch / "models" / model.name / path.name).symlink_to(path.resolve())
    (scratch / "lib").mkdir()
    (scratch / "lib" / LIBPYTHON).symlink_to(triton.libpython)
    shutil.copytree(triton.python, scratch / "backends" / "python")  # Triton refuses links here
    shutil.copy(triton.stub, scratch / "backends" / "python")
    (scratch / "backends" / "oneflow").mkdir()
    (scratch / "backends" / "oneflow" / "model.py").write_text(ONEFLOW, encoding="utf-8")
    venv.create(scratch / "venv", symlinks=True)
    (packages,) = (scratch / "venv" / "lib").glob("python*/site-packages")
    paths = dict.fromkeys(map(os.path.abspath, [Path(__file__).parents[2], *sys.path]))
    lines = ["import sys; sys.dont_write_bytecode = True", *paths]  # no __pycache__ beside model.py: see `supervise`
    (packages / "miniflow.pth").write_text("\n".join(lines), encoding="utf-8")
    libraries = (f"{scratch}/lib", str(triton.libraries), os.environ.get("LD_LIBRARY_PATH"))
    return os.environ | {
        "PATH": f"{scratch}/venv/bin:{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
    }


@contextmanager
def started(models: Sequence[Path], host: str = "127.0.0.1", port: int = 8000) -> Iterator[subprocess.Popen]:
    """A server of the folders of models that is ready to answer; it has ended when the block has. It logs to stderr.

    Raises:
        ArgumentError: see `find_triton`; or if the address cannot be used.
        WorkerError: if Triton ends before it is ready; it has logged why.
    """
    triton = find_triton()
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise ArgumentError(f"serve: got {host}:{port}; expected an address that is free: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="miniflow-serve-") as scratch:
        environment = layout(Path(scratch), triton, models)
        command = [triton.server, f"--model-repository={scratch}/models", f"--backend-directory={scratch}/backends"]
        command += [f"--http-address={host}", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
        command += ["--exit-on-error=false", "--strict-readiness=false", "--disable-auto-complete-config"]
        command += ["--model-control-mode=poll", "--repository-poll-secs=1"]
        # whoever may ask must not reach the memory that Triton shares with its processes, nor write files by its logs
        command += [f"--http-restricted-api={CLOSED}:key={secrets.token_hex()}"]
        command += ["--log-info=false", f"--exit-timeout-secs={EXIT_SECONDS}"]
        # in a session of its own, which Ctrl-C does not reach
        process, stopping = subprocess.Popen(command, env=environment, start_new_session=True), threading.Event()
        supervisor = threading.Thread(target=supervise, args=(process.pid, stopping), daemon=True)
        try:
            supervisor.start()
            while not is_ready(host, port):
                if process.poll() is not None:
                    raise WorkerError(f"serve: Triton ended with code {process.returncode}; it has logged why")
                time.sleep(0.1)
            for model in models:
                if not is_ready(host, port, f"/models/{model.name}"):
                    print(f"serve: {model.name} cannot be loaded; Triton has logged why", file=sys.stderr)
                    shutil.rmtree(f"{scratch}/models/{model.name}")  # else Triton tries again each second
            yield process
        finally:
            stopping.set()
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2 * EXIT_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # if it did not end, or processes of models are left
            process.wait()


def supervise(server: int, stopping: threading.Event) -> None:
    """Let Triton load a model again when a process of it has ended.

    Triton has not done so itself since release 24.06, but loads models whose files are newer than it knows.
    """
    stubs: dict[int, Path] = {}  # process -> the folder of its model
    while not stopping.wait(0.2):  # so it has seen each process before that has loaded its model
        with suppress(FileNotFoundError, ProcessLookupError):  # processes end meanwhile
            for thread in Path(f"/proc/{server}/task").iterdir():
                for child in map(int, (thread / "children").read_text().split()):
                    program, model, *_ = [*Path(f"/proc/{child}/cmdline").read_text().split("\0"), ""]
                    if program.endswith(STUB):
                        stubs[child] = Path(model).parents[1]
                    elif child in stubs:  # has ended, and has no arguments any more
                        print(f"serve: an instance of {stubs[child].name} ended; it is started again", file=sys.stderr)
                        (stubs.pop(child) / "restarted").touch()


def is_ready(host: str, port: int, path: str = "") -> bool:
    """Whether Triton has loaded all models that it can load, or the one of a path."""
    connection = HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", f"/v2{path or '/health'}/ready")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def run(models: Sequence[Path], host: str, port: int) -> int:
    """Serve until Ctrl-C or SIGTERM; print where, and a request for each model that answers. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with started(models, host, port) as process:
            for model in models:
                if is_ready(host, port, f"/models/{model.name}"):
                    print(f"{model.name} answers, for example:\n    {example(f'http://{host}:{port}', model)}")
            print(f"Triton listens on http://{host}:{port}; Ctrl-C ends it.", flush=True)
            return process.wait()
    except KeyboardInterrupt:
        return 0
