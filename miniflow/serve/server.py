"""NVIDIA Triton for saved graphs: finds it, gives its Python backend what it needs, starts it, and ends it.

The `tritonserver` on the PATH is used, as in NVIDIA's container, else the one that the package nvidia-pytriton brings.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from miniflow.errors import ArgumentError, WorkerError
from miniflow.serve.repository import MODEL
from miniflow.serve.triton import RESTARTED

STUB = "triton_python_backend_stub"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBPYTHON = f"libpython{PYTHON}.so.1.0"
CLOSED = "shared-memory,model-repository,trace,logging"
EXIT_SECONDS = 5  # for requests that are being answered


def find_triton() -> tuple[Path, Path, Path]:
    """The installation to use: the server, the stub that runs models in this version of Python, and its library.

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
    server, chosen = Path(found).resolve(), []
    stubs = (server.parents[1] / "python_backend_stubs" / PYTHON, server.parents[1] / "backends" / "python")
    libraries = (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib")
    for file, folders in ((STUB, stubs), (LIBPYTHON, libraries)):
        chosen += [path for path in (Path(folder, file) for folder in folders) if path.exists()][:1] or [None]
        if chosen[-1] is None:
            raise ArgumentError(
                f"serve: {server} cannot run {sys.executable}: there is no {file} in {' or '.join(map(str, folders))}; "
                "expected a version of Python that Triton knows, with its shared library: use another Python"
            )
    return server, *chosen


def layout(scratch: Path, server: Path, stub: Path, libpython: Path, models: Sequence[Path]) -> dict[str, str]:
    """Put what Triton is to see into a folder: the models, the backends, and this Python with its packages.

    The stub ignores PYTHONPATH; it runs in the virtual environment that is first on the PATH.

    Returns:
        the environment to start Triton in.
    """
    for model in models:
        shutil.copytree(model, scratch / "models" / model.name, copy_function=os.symlink)
        (scratch / "models" / model.name / RESTARTED).touch()
    (scratch / "lib").mkdir()
    (scratch / "lib" / LIBPYTHON).symlink_to(libpython)
    shutil.copytree(server.parents[1] / "backends" / "python", scratch / "backends" / "python")  # links are refused
    shutil.copy(stub, scratch / "backends" / "python")
    (scratch / "backends" / "oneflow").mkdir()
    # OneFlow's configs have `backend: "oneflow"`. A backend that is a model.py runs in Triton's Python backend.
    (scratch / "backends" / "oneflow" / "model.py").write_text(MODEL, encoding="utf-8")
    venv.create(scratch / "venv", symlinks=True)
    (packages,) = (scratch / "venv" / "lib").glob("python*/site-packages")
    paths = dict.fromkeys(map(os.path.abspath, [Path(__file__).parents[2], *sys.path]))
    lines = ["import sys; sys.dont_write_bytecode = True", *paths]  # no __pycache__ beside model.py, a change
    (packages / "miniflow.pth").write_text("\n".join(lines), encoding="utf-8")
    libraries = (f"{scratch}/lib", f"{server.parents[3]}/nvidia_pytriton.libs", os.environ.get("LD_LIBRARY_PATH"))
    return os.environ | {
        "PATH": f"{scratch}/venv/bin:{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
    }


@contextmanager
def started(models: Sequence[Path], host: str, port: int) -> Iterator[subprocess.Popen]:
    """A server of the folders of models that is ready to answer; it has ended when the block has. It logs to stderr.

    Raises:
        ArgumentError: see `find_triton`.
        WorkerError: if Triton ends before it is ready, or can load no model; it has logged why.
    """
    server, stub, libpython = find_triton()
    with tempfile.TemporaryDirectory(prefix="miniflow-serve-") as scratch:
        environment = layout(Path(scratch), server, stub, libpython, models)
        command = [server, f"--model-repository={scratch}/models", f"--backend-directory={scratch}/backends"]
        command += [f"--http-address={host}", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
        command += ["--exit-on-error=false", "--strict-readiness=false", "--disable-auto-complete-config"]
        command += ["--model-control-mode=poll", "--repository-poll-secs=1"]
        # whoever may ask must not reach the memory that Triton shares with its processes, nor write files by its logs
        command += [f"--http-restricted-api={CLOSED}:key={secrets.token_hex()}"]
        command += ["--log-info=false", f"--exit-timeout-secs={EXIT_SECONDS}"]
        # in a session of its own, which Ctrl-C does not reach
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            while get(f"http://{host}:{port}/v2/health/ready") is None:
                if process.poll() is not None:
                    raise WorkerError(f"serve: Triton ended with code {process.returncode}; it has logged why")
                time.sleep(0.1)
            failed = [model for model in models if get(f"http://{host}:{port}/v2/models/{model.name}") is None]
            if len(failed) == len(models):
                raise WorkerError("serve: no model can be loaded; Triton has logged why")
            for model in failed:
                print(f"serve: {model.name} cannot be loaded; Triton has logged why", file=sys.stderr)
                shutil.rmtree(f"{scratch}/models/{model.name}")  # else Triton tries again each second
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2 * EXIT_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # if it did not end, or processes of models are left
            process.wait()


def get(url: str) -> Any:
    """What a server of this machine answers in JSON; None if it does not, or refuses."""
    try:
        return json.loads(build_opener(ProxyHandler({})).open(url, timeout=10).read() or "true")
    except (OSError, HTTPException):
        return None
