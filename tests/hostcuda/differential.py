"""Random kernels in the compiled and the checked mode, held against the reference executor.

python tests/hostcuda/differential.py --seed 17             one kernel: its text, and where the modes differ
python tests/hostcuda/differential.py --seconds 3600        kernels of fresh seeds, or from --start on, for an hour
python tests/hostcuda/differential.py --seed 17 --reduce    the smallest found in --seconds that still differs
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
from expectations import launch, with_options
from random_kernels import RandomKernel, draw, function_of
from reference import run_reference

NO_END = {"both": "the process died, or took more than four minutes of CPU time"}
LIMIT = 240  # seconds
MODES: dict[str, dict[str, Any]] = {"compiled": {}, "checked": {"check": True}}


def reference(kernel: RandomKernel) -> list[Any]:
    """What the arguments hold afterwards; two orders of the threads must agree, or the drawn kernel has a race."""
    results = []
    for seed, order in enumerate(("forward", "backward")):
        arguments = kernel.copies()
        function = kernel.function.py_func
        run_reference(function, kernel.grid, kernel.block, arguments, kernel.shared_bytes, order, seed)
        results.append(arguments)
    message = difference(kernel, results[0], results[1])
    if message:
        raise RuntimeError(f"seed {kernel.seed}: the drawn kernel depends on the order of its threads: {message}")
    return results[0]


def difference(kernel: RandomKernel, got: list[Any], expected: list[Any]) -> str:
    """The first argument that differs, and where; "" if none does."""
    names = kernel.function.py_func.__code__.co_varnames
    for name, a, b in zip(names, got, expected, strict=False):
        if not isinstance(a, np.ndarray):
            continue
        fields = [(name, a, b)] if not a.dtype.names else [(f"{name}.{f}", a[f], b[f]) for f in a.dtype.names]
        for label, one, other in fields:
            equal = (one == other) | ((one != one) & (other != other))
            if not equal.all():
                where = tuple(np.argwhere(~equal)[0].tolist())
                return f"{label}{list(where)} is {one[where]}, expected {other[where]}; {(~equal).sum()} differ"
    return ""


def outcome(kernel: RandomKernel, expected: list[Any], options: dict[str, Any]) -> str:
    """ "" if a mode leaves the same arrays; else the difference, or the error."""
    arguments = kernel.copies()
    try:
        jitted = with_options(kernel.function, **options)
        launch(jitted, kernel.grid, kernel.block, arguments, kernel.shared_bytes)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:600]}"
    return difference(kernel, arguments, expected)


def disagreements(kernel: RandomKernel) -> dict[str, str]:
    """mode -> what is different there."""
    expected = reference(kernel)
    found = {mode: outcome(kernel, expected, options) for mode, options in MODES.items()}
    return {mode: message for mode, message in found.items() if message}


def in_child(function: Callable[[], Any], seconds: int, otherwise: Any) -> Any:
    """What a function returns in a forked process; `otherwise` if it dies, or takes more seconds of CPU time."""
    receive, send = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        send.send(function())

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    send.close()
    try:
        return receive.recv() if receive.poll(10 * seconds) else otherwise
    except EOFError:
        return otherwise
    finally:
        child.kill()
        child.join()


# Reducing


def places(tree: ast.Module) -> list[tuple[list, int]]:
    """The statements of all functions as (list, position), outer ones first."""
    bodies = [
        getattr(node, field)
        for node in ast.walk(tree)
        for field in ("body", "orelse")
        if not isinstance(node, ast.Module | ast.IfExp | ast.Lambda) and getattr(node, field, None)
    ]
    return [(body, position) for body in bodies for position in range(len(body))]


def without(text: str, number: int, count: int) -> str | None:
    """The module without `count` statements from that number on; for 0, with the statement's body in its place."""
    tree = ast.parse(text)
    body, position = places(tree)[number]
    inner = getattr(body[position], "body", None)
    if count == 0 and not isinstance(inner, list):
        return None
    body[position : position + max(count, 1)] = inner if count == 0 else []
    if not body:
        body.append(ast.Pass())
    return ast.unparse(tree)


def reduced(kernel: RandomKernel, mode: str, seconds: float) -> RandomKernel:
    """A smaller kernel on which a mode differs in the same way: a wrong result, or an error of the same class."""
    message = in_child(lambda: disagreements(kernel), LIMIT, {}).get(mode, "")
    kind = message.split(" ")[0].split(":")[0]
    end = time.time() + seconds
    for count in (16, 8, 4, 2, 1, 0, 4, 2, 1, 0):
        number = 0
        while number < len(places(ast.parse(kernel.text))) and time.time() < end:
            attempt = attempted(kernel, without(kernel.text, number, count))
            if attempt and in_child(functools.partial(differs, attempt, mode, kind), 30, False):
                kernel = attempt
            else:
                number += max(1, count // 2)
    return kernel


def attempted(kernel: RandomKernel, text: str | None) -> RandomKernel | None:
    if text is None or text == ast.unparse(ast.parse(kernel.text)):
        return None
    try:
        function = function_of(text, f"<reduced kernel {kernel.seed}, {len(text)} characters, {hash(text)}>")
    except SyntaxError:
        return None
    return dataclasses.replace(kernel, text=text, function=function)


def differs(kernel: RandomKernel, mode: str, kind: str) -> bool:
    try:
        expected = reference(kernel)
    except Exception:
        return False
    message = outcome(kernel, expected, MODES[mode])
    same_kind = message.startswith(kind) if kind[:1].isupper() else not message[:1].isupper()
    return bool(message) and same_kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--length", type=int, default=2, help="statements of a kernel, besides those that they hold")
    parser.add_argument("--characters", type=int, default=1800, help="kernels with longer texts are passed over")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--start", type=int, default=int(time.time()) * 1000)
    parser.add_argument("--reduce", action="store_true")
    options = parser.parse_args()
    if options.seed is None:
        fuzz(options)
        return
    kernel = draw(options.seed, options.length)
    found = in_child(lambda: disagreements(kernel), LIMIT, NO_END)
    for mode in [mode for mode in found if mode in MODES] if options.reduce else []:
        print(mode, reduced(kernel, mode, options.seconds).text, sep="\n")
    print("" if options.reduce else kernel.text, kernel.grid, kernel.block, found or "all agree", sep="\n")


def disagree(seed: int, length: int) -> dict[str, str]:
    return disagreements(draw(seed, length))


def fuzz(options: argparse.Namespace) -> None:
    """Seeds from `start` on; prints those that differ."""
    seed, end, count, wrong = options.start, time.time() + options.seconds, 0, 0
    while time.time() < end:
        if len(draw(seed, options.length).text) <= options.characters:
            count += 1
            for mode, message in in_child(functools.partial(disagree, seed, options.length), LIMIT, NO_END).items():
                print(f"seed {seed}, {mode}: {message}", flush=True)
                wrong += 1
            if count % 50 == 0:
                print(f"{count} kernels so far, {wrong} disagreements", flush=True)
        seed += 1
    print(f"{count} kernels, {wrong} disagreements")


if __name__ == "__main__":
    main()
