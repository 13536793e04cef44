"""A request to try a model with."""

from __future__ import annotations

from math import prod
from pathlib import Path

from miniflow.serve.config import datatype_of, read_config


def example(url: str, model: Path) -> str:
    """A request for a model, with one row of zeros, as a line for a shell.

    Args:
        url: of the server.
        model: the folder of the model.
    """
    config, inputs = read_config(model), []
    for tensor in config.input:
        shape = [1] * bool(config.max_batch_size) + [max(dim, 1) for dim in tensor.dims]
        data = f"[{'False' if datatype_of(tensor) == 'BOOL' else 0}] * {prod(shape)}"
        inputs.append(
            f'{{"name": "{tensor.name}", "shape": {shape}, "datatype": "{datatype_of(tensor)}", "data": {data}}}'
        )
    request = f'{{"inputs": [{", ".join(inputs)}]}}'
    return f"python -c 'import json; print(json.dumps({request}))' | curl -d @- {url}/v2/models/{model.name}/infer"
