"""What NVIDIA Triton's Python backend runs: `model.py` of a model imports the class from here.

Triton starts a process for each instance of a model, its stub, which creates a `TritonPythonModel` and hands it the
requests that wait. Tensors go both ways by DLPack: the stub reads NumPy 2 arrays wrongly.

Source: https://github.com/triton-inference-server/python_backend.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from miniflow.errors import DTypeError
from miniflow.ops.creation import from_dlpack
from miniflow.serve.model import REFUSALS, ServedModel
from miniflow.tensor import Tensor

CONSUMED = ctypes.c_char_p(b"used_dltensor")  # capsules keep the address of their name
RESTARTED = "restarted"  # in the folder of a model: a file whose change lets Triton load the model again
WATCH = 'read ended || { test -e "$1" && touch "$1" && echo "serve: an instance of $0 ended; it is restarted" >&2; }'
rename_capsule = ctypes.pythonapi.PyCapsule_SetName
rename_capsule.argtypes = ctypes.py_object, ctypes.c_char_p


class TritonPythonModel:
    """One instance of a model, as Triton's Python backend expects it. Triton calls the methods."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the graph.

        Raises:
            ArgumentError, CheckpointError, GraphError: see `ServedModel`; Triton logs the message.
            DTypeError: for bfloat16, which NumPy cannot hand over by DLPack.
        """
        self._backend = import_module("triton_python_backend_utils")  # exists in the stub alone
        self._model = ServedModel(args["model_repository"])
        if "BF16" in {port.datatype for ports in (self._model.inputs, self._model.outputs) for port in ports.values()}:
            raise DTypeError(f"{self._model.name}: takes or returns bfloat16; expected a graph that casts it")
        # Triton does not restart processes since release 24.06: a shell outlives this one, and sees that the pipe ends
        restarted = Path(args["model_repository"], RESTARTED)
        self._watch = subprocess.Popen(["sh", "-c", WATCH, self._model.name, restarted], stdin=subprocess.PIPE)

    def finalize(self) -> None:
        """The model is not needed any more."""
        self._watch.communicate(b"ended\n")

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """The responses to requests, in their order; those that are refused get 400 and a sentence."""
        given = [{x.name(): from_dlpack(x) for x in request.inputs()} for request in requests]
        return [self._response(answer) for answer in self._model.answer(given)]

    def _response(self, answer: dict[str, Tensor] | Exception) -> Any:
        if isinstance(answer, REFUSALS):
            error = self._backend.TritonError(str(answer), self._backend.TritonError.INVALID_ARG)
            return self._backend.InferenceResponse([], error)
        return self._backend.InferenceResponse([self._handed_over(name, y) for name, y in answer.items()])

    def _handed_over(self, name: str, y: Tensor) -> Any:
        """An output for Triton, which copies what it gets. It renames capsules, to a name that NumPy does not know."""
        capsule = np.ascontiguousarray(y.numpy()).__dlpack__()
        tensor = self._backend.Tensor.from_dlpack(name, capsule)
        rename_capsule(capsule, CONSUMED)
        return tensor
