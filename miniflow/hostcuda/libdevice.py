"""`cuda.libdevice`: CUDA's math library, as far as Python's `math` and `cuda` itself have the same function.

libdevice names a function once per type: `expf` takes and gives float32, `exp` float64. `TABLE` says for each which
function computes it, and the dtypes to convert its arguments and result to.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from miniflow.hostcuda.intrinsic import Intrinsic


@dataclass(frozen=True)
class Counterpart:
    """What a libdevice function is on the host.

    Attributes:
        function: "math.exp", "np.rint", "cuda.rsqrt", or a builtin such as "abs".
        takes: the dtype of each argument.
        gives: the dtype of the result.
    """

    function: str
    takes: tuple[str, ...]
    gives: str


def _pair(name: str, function: str, arity: int = 1) -> dict[str, Counterpart]:
    """The float64 function `name` and the float32 function `namef`."""
    return {
        name: Counterpart(function, ("float64",) * arity, "float64"),
        name + "f": Counterpart(function, ("float32",) * arity, "float32"),
    }


UNARY = (
    "acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp expm1 fabs floor lgamma log log10 log1p log2 sin sinh"
    " sqrt tan tanh trunc"
).split()
BINARY = "atan2 copysign hypot pow".split()


def _table() -> dict[str, Counterpart]:
    table: dict[str, Counterpart] = {}
    for name in UNARY:
        table |= _pair(name, f"math.{name}")
    for name in BINARY:
        table |= _pair(name, f"math.{name}", 2)
    table |= _pair("tgamma", "math.gamma")
    table |= _pair("cbrt", "cuda.cbrt") | _pair("rsqrt", "cuda.rsqrt") | _pair("fma", "cuda.fma", 3)
    table |= _pair("fmod", "np.fmod", 2)  # numba has no math.fmod for CPUs
    table |= _pair("fmax", "np.fmax", 2) | _pair("fmin", "np.fmin", 2)
    table |= _pair("rint", "np.rint") | _pair("nearbyint", "np.rint")
    table |= _pair("exp2", "np.exp2") | _pair("nextafter", "np.nextafter", 2)
    for name in "cos exp log log10 log2 sin tan".split():
        table[f"fast_{name}f"] = Counterpart(f"math.{name}", ("float32",), "float32")
    table["fast_powf"] = Counterpart("math.pow", ("float32", "float32"), "float32")
    for name in ("clz", "ffs", "popc"):
        table[name] = Counterpart(f"cuda.{name}", ("int32",), "int32")
        table[name + "ll"] = Counterpart(f"cuda.{name}", ("int64",), "int32")
    table["brev"] = Counterpart("cuda.brev", ("uint32",), "int32")
    table["brevll"] = Counterpart("cuda.brev", ("uint64",), "int64")
    for prefix, dtype in {"": "int32", "ll": "int64", "u": "uint32", "ull": "uint64"}.items():
        for name in ("max", "min"):
            table[prefix + name] = Counterpart(name, (dtype, dtype), dtype)
    table["abs"] = Counterpart("abs", ("int32",), "int32")
    table["llabs"] = Counterpart("abs", ("int64",), "int64")
    for name in ("isinf", "isnan", "isfinite"):
        table[name + "d"] = Counterpart(f"math.{name}", ("float64",), "int32")
        single = "finitef" if name == "isfinite" else name + "f"
        table[single] = Counterpart(f"math.{name}", ("float32",), "int32")
    return table


TABLE = _table()
"""libdevice function -> Counterpart."""

libdevice = SimpleNamespace(**{name: Intrinsic(f"libdevice.{name}") for name in TABLE})
