"""Op classes under their names: `from op_classes import Add, GeluGrad`."""

import miniflow  # noqa: F401  (defines them)
from miniflow.dispatch.dispatcher import Op


def __getattr__(name: str) -> type[Op]:
    try:
        return Op.by_name[name]
    except KeyError:
        raise AttributeError(name) from None
