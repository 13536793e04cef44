"""Serve saved graphs: `graph.save(path, serve=True)`, or `prepare(folder)`, then `python -m miniflow.serve folder`.

The folder is a model repository of NVIDIA Triton in OneFlow's layout. `repository` writes it, `config` reads and writes
the `config.pbtxt` of a model, and `model` answers requests with a saved graph.
"""

from miniflow.serve.config import read_config, write_config
from miniflow.serve.model import REFUSALS, ServedModel
from miniflow.serve.repository import prepare

__all__ = ["REFUSALS", "ServedModel", "prepare", "read_config", "write_config"]
