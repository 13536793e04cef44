"""Trigonometric and hyperbolic functions, their inverses, `hypot`, and angles in degrees.

Integers are computed in the default floating dtype.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.formulas import scalar
from miniflow.formulas.scalar import cos as cosine
from miniflow.formulas.scalar import cosh as hyperbolic_cosine
from miniflow.formulas.scalar import sin as sine
from miniflow.formulas.scalar import sinh as hyperbolic_sine
from miniflow.formulas.scalar import sqrt, where
from miniflow.ops.pointwise import pointwise


@pointwise(cpu=np.sin, accepts="f", integers="float")
def sin(x):
    """sin x, elementwise. `torch.sin`."""
    return sine(x)


sin.gradient(lambda dy, x: dy * cosine(x))


@pointwise(cpu=np.cos, accepts="f", integers="float")
def cos(x):
    """cos x, elementwise. `torch.cos`."""
    return cosine(x)


cos.gradient(lambda dy, x: -(dy * sine(x)))


@pointwise(cpu=np.tan, accepts="f", integers="float")
def tan(x):
    """tan x, elementwise. `torch.tan`."""
    return scalar.tan(x)


tan.gradient(lambda dy, out: dy * (1 + out * out))


@pointwise(cpu=np.arcsin, accepts="f", integers="float", synonyms=("arcsin",))
def asin(x):
    """The angle in [-pi/2, pi/2] whose sine is x, elementwise; NaN outside [-1, 1]. `torch.asin`."""
    return scalar.asin(x)


asin.gradient(lambda dy, x: dy / sqrt(1 - x * x))


@pointwise(cpu=np.arccos, accepts="f", integers="float", synonyms=("arccos",))
def acos(x):
    """The angle in [0, pi] whose cosine is x, elementwise; NaN outside [-1, 1]. `torch.acos`."""
    return scalar.acos(x)


acos.gradient(lambda dy, x: -dy / sqrt(1 - x * x))


@pointwise(cpu=np.arctan, accepts="f", integers="float", synonyms=("arctan",))
def atan(x):
    """The angle in (-pi/2, pi/2) whose tangent is x, elementwise. `torch.atan`."""
    return scalar.atan(x)


atan.gradient(lambda dy, x: dy / (1 + x * x))


@pointwise(cpu=np.arctan2, accepts="f", integers="float", synonyms=("arctan2",))
def atan2(x, y):
    """The angle in (-pi, pi] of the point (other, input): that of input / other by quadrant. `torch.atan2`."""
    return scalar.atan2(x, y)


def _per_square(x, y, dy):
    """dy / (x^2 + y^2); 0 at the origin, where an angle has no gradient."""
    square = x * x + y * y
    return where(square == 0, 0, dy / square)


atan2.gradient("x")(lambda dy, x, y: _per_square(x, y, dy * y))
atan2.gradient("y")(lambda dy, x, y: -_per_square(x, y, dy * x))


@pointwise(cpu=np.sinh, accepts="f", integers="float")
def sinh(x):
    """The hyperbolic sine (e^x - e^-x) / 2, elementwise. `torch.sinh`."""
    return hyperbolic_sine(x)


sinh.gradient(lambda dy, x: dy * hyperbolic_cosine(x))


@pointwise(cpu=np.cosh, accepts="f", integers="float")
def cosh(x):
    """The hyperbolic cosine (e^x + e^-x) / 2, elementwise. `torch.cosh`."""
    return hyperbolic_cosine(x)


cosh.gradient(lambda dy, x: dy * hyperbolic_sine(x))


@pointwise(cpu=np.arcsinh, accepts="f", integers="float", synonyms=("arcsinh",))
def asinh(x):
    """The number whose hyperbolic sine is x, elementwise. `torch.asinh`."""
    return scalar.asinh(x)


asinh.gradient(lambda dy, x: dy / sqrt(x * x + 1))


@pointwise(cpu=np.arccosh, accepts="f", integers="float", synonyms=("arccosh",))
def acosh(x):
    """The number above 0 whose hyperbolic cosine is x, elementwise; NaN below 1. `torch.acosh`."""
    return scalar.acosh(x)


acosh.gradient(lambda dy, x: dy / sqrt(x * x - 1))


@pointwise(cpu=np.arctanh, accepts="f", integers="float", synonyms=("arctanh",))
def atanh(x):
    """The number whose hyperbolic tangent is x, elementwise; NaN outside [-1, 1]. `torch.atanh`."""
    return scalar.atanh(x)


atanh.gradient(lambda dy, x: dy / (1 - x * x))


@pointwise(cpu=np.hypot, accepts="f")
def hypot(x, y):
    """sqrt(input^2 + other^2), without overflow in between. `torch.hypot`."""
    return scalar.hypot(x, y)


hypot.gradient("x")(lambda dy, x, out: dy * x / out)
hypot.gradient("y")(lambda dy, y, out: dy * y / out)


@pointwise(accepts="f", integers="float")
def rad2deg(x):
    """Radians in degrees, elementwise. `torch.rad2deg`."""
    return x * (180 / math.pi)


rad2deg.gradient(lambda dy: dy * (180 / math.pi))


@pointwise(accepts="f", integers="float")
def deg2rad(x):
    """Degrees in radians, elementwise. `torch.deg2rad`."""
    return x * (math.pi / 180)


deg2rad.gradient(lambda dy: dy * (math.pi / 180))
