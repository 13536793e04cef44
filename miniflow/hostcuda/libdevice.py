"""`cuda.libdevice` and `cuda.fp16`: CUDA's math library, as far as it has a counterpart of one line on the host.

Left out is what an operator or function of Python says as well (`fdiv_rn`, `fsqrt_rn`, `max`), and arithmetic on parts
of words (`mul24`, `hadd`, `sad`, `double2hiint`).

libdevice names a function once per type: `expf` takes and gives float32, `exp` float64. `TABLE` says for each which
function computes it, and the dtypes to convert its arguments and result to.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

from miniflow.hostcuda.intrinsic import Intrinsic


class Counterpart(NamedTuple):
    """The counterpart of a libdevice function on the host.

    Attributes:
        function: "math.exp", "np.rint", "cuda.rsqrt", a builtin or function of `runtime`, or an expression of the
            arguments {0}, {1} ..., each of which stands there once.
        takes: the dtype of each argument.
        gives: the dtype of the result; "" if it is what the function gives, such as a tuple or a bool.
    """

    function: str
    takes: tuple[str, ...]
    gives: str


LETTERS = {"f": "float32", "d": "float64", "i": "int32", "u": "uint32", "l": "int64", "w": "uint64", "s": "int16"}
"""Dtypes in ROWS. x stands for both floats, `exp` of float64 and `expf` of float32; - for what the function gives."""


ROWS = """
acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp expm1 fabs | x x | math.NAME
floor lgamma log log10 log1p log2 sin sinh sqrt tan tanh trunc tgamma=gamma | x x | math.NAME
atan2 copysign hypot pow              | xx x | math.NAME
cbrt rsqrt                            | x x  | cuda.NAME
fma                                   | xxx x | cuda.NAME
fmod fmax fmin nextafter              | xx x | np.NAME
rint nearbyint=rint exp2              | x x  | np.NAME
round=round_away                      | x x  | NAME
remainder                             | xx x | NAME
erfinv                                | x x  | NAME(np.float64({0}))
normcdf                               | x x  | math.erfc(-math.sqrt(0.5) * np.float64({0})) / 2
sincos modf                           | x -  | NAME
frexp                                 | x -  | math.NAME
ldexp scalbn=ldexp powi=pow           | xi x | math.NAME
llrint=rint                           | x l  | np.NAME
llround=round_away                    | x l  | NAME
fast_cosf=cos fast_expf=exp fast_logf=log fast_log10f=log10 fast_log2f=log2 | f f | math.NAME
fast_sinf=sin fast_tanf=tan           | f f  | math.NAME
fast_powf=pow                         | ff f | math.NAME
fast_fdividef                         | ff f | {0} / {1}
fadd_rn=add_rn fsub_rn=sub_rn fmul_rn=mul_rn | ff f | NAME
dadd_rn=add_rn dmul_rn=mul_rn         | dd d | NAME
saturatef                             | f f  | np.fmin(np.fmax({0}, np.float32(0)), np.float32(1))
isinff=isinf isnanf=isnan finitef=isfinite   | f i | math.NAME
isinfd=isinf isnand=isnan isfinited=isfinite | d i | math.NAME
clz ffs popc                          | i i  | cuda.NAME
clzll=clz ffsll=ffs popcll=popc       | l i  | cuda.NAME
brev                                  | u i  | cuda.NAME
brevll=brev                           | w l  | cuda.NAME
mulhi                                 | ii i | np.int64({0}) * np.int64({1}) >> np.int64(32)
umulhi                                | uu i | np.uint64({0}) * np.uint64({1}) >> np.uint64(32)
double2float_rn                       | d f  | {0}
half2float=half_of                    | s f  | NAME
float2half_rn                         | f s  | np.float16({0}).view(np.int16)
float_as_int                          | f i  | {0}.view(np.int32)
int_as_float                          | i f  | {0}.view(np.float32)
double_as_longlong                    | d l  | {0}.view(np.int64)
longlong_as_double                    | l d  | {0}.view(np.float64)
"""
ROUNDINGS = {"rn": "np.rint", "rz": "np.trunc", "rd": "np.floor", "ru": "np.ceil"}


def _table() -> dict[str, Counterpart]:
    rows = [[part.strip() for part in row.split("|", 2)] for row in ROWS.strip().split("\n")]
    for source, float_type in (("float", "f"), ("double", "d")):  # unsigned results come as signed integers
        for target, letter, result in (("int", "i", "i"), ("uint", "u", "i"), ("ll", "l", "l"), ("ull", "w", "l")):
            rows.append([f"{target}2{source}_rn", f"{letter} {float_type}", "{0}"])
            for mode, function in ROUNDINGS.items():
                text = f"np.{LETTERS[letter]}({function}({{0}}))"
                rows.append([f"{source}2{target}_{mode}", f"{float_type} {result}", text])
    table = {}
    for names, dtypes, function in rows:
        for suffix, single in (("", "d"), ("f", "f")) if "x" in dtypes else (("", ""),):
            takes, gives = dtypes.replace("x", single).split()
            for name in names.split():
                name, _, ours = name.partition("=")
                text = function.replace("NAME", ours or name)
                table[name + suffix] = Counterpart(text, tuple(map(LETTERS.get, takes)), LETTERS.get(gives, ""))
    return table


def _of_halves() -> dict[str, Counterpart]:
    """`cuda.fp16`: comparisons give a bool, the others a float16, which is computed in float32 and rounded."""
    texts = {
        "hadd": "{0} + {1}", "hsub": "{0} - {1}", "hmul": "{0} * {1}", "hdiv": "{0} / {1}", "hneg": "-{0}",
        "habs": "abs({0})", "hfma": "np.float64({0}) * np.float64({1}) + np.float64({2})",  # exact up to one rounding
        "hmax": "np.fmax(np.float32({0}), np.float32({1}))", "hmin": "np.fmin(np.float32({0}), np.float32({1}))",
        "hrcp": "np.float32(1) / np.float32({0})", "hrint": "np.rint(np.float32({0}))",
        "hrsqrt": "rsqrt(np.float32({0}))", "hexp10": "math.pow(10.0, {0})", "htanh_approx": "tanh({0})",
    }  # fmt: skip
    for name in "cos exp exp2 log log10 log2 sin sqrt tanh ceil floor trunc".split():
        function = f"np.{name}" if name in ("exp2", "ceil", "floor", "trunc") else f"math.{name}"
        texts[f"h{name}"] = f"{name if name in ('exp', 'log', 'tanh') else function}(np.float32({{0}}))"
    table = {name: Counterpart(t, ("float16",) * t.count("{"), "float16") for name, t in texts.items()}
    for name, symbol in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        table[f"h{name}"] = Counterpart(f"{{0}} {symbol} {{1}}", ("float16", "float16"), "")
    return table


TABLE = _table()
"""libdevice function -> Counterpart."""
FP16 = _of_halves()
"""Function of `cuda.fp16` -> Counterpart."""
COUNTERPARTS = {f"libdevice.{k}": v for k, v in TABLE.items()} | {f"fp16.{k}": v for k, v in FP16.items()}

libdevice = SimpleNamespace(**{name: Intrinsic(f"libdevice.{name}") for name in TABLE})
fp16 = SimpleNamespace(**{name: Intrinsic(f"fp16.{name}") for name in FP16})
