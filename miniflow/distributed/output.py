"""What ranks print, in whole lines: mpiexec mixes what they write, and cuts it anywhere.

MPICH's mpiexec marks each piece with the rank that has written it, and the launcher puts the lines together again. What
other ones pass on stays as it comes.
"""

from __future__ import annotations

import contextlib
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MARK = re.compile(rb"\x1e(\d+)\x1f")
PAUSE = 0.3  # seconds without output, after which a line appears that is not finished: a prompt


def start(mpiexec: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen:
    """Start mpiexec, with its output in pipes and marked if it is that of MPICH."""
    if not Path(mpiexec).resolve().with_name("hydra_pmi_proxy").exists():
        return subprocess.Popen([mpiexec, *arguments], env=environment)
    command = [mpiexec, "-prepend-pattern", "\x1e%r\x1f", *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )  # fmt: skip


@contextlib.contextmanager
def in_lines(process: subprocess.Popen) -> Iterator[None]:
    """Print what the ranks write while the block runs, all of it before the block ends."""
    streams = [(process.stdout, sys.stdout), (process.stderr, sys.stderr)]
    threads = [threading.Thread(target=relay, args=(a, b.buffer), daemon=True) for a, b in streams if a is not None]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(10)  # a process that outlives mpiexec may hold the pipe


def relay(source: IO[bytes], sink: IO[bytes]) -> None:
    """Copy marked pieces, line by line; where the sink is closed, so is the source."""
    open_lines: dict[bytes, bytes] = {}  # rank -> what it has written since the end of its last line
    rank = remainder = b""
    with source, contextlib.suppress(BrokenPipeError):
        while True:
            if any(open_lines.values()) and not select.select([source], [], [], PAUSE)[0]:
                sink.write(b"".join(open_lines.values()))
                open_lines.clear()
            sink.flush()
            chunk = source.read(1 << 16)
            data = remainder + chunk
            cut = data.rfind(b"\x1e") if chunk and b"\x1f" not in data[data.rfind(b"\x1e") :] else -1  # half a mark
            data, remainder = (data[:cut], data[cut:]) if cut >= 0 else (data, b"")
            pieces = [rank, *MARK.split(data)]
            for rank, text in zip(pieces[::2], pieces[1::2], strict=True):
                text = open_lines.get(rank, b"") + text
                end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
                sink.write(text[:end])
                open_lines[rank] = text[end:]
            if not chunk:
                sink.write(b"".join(open_lines.values()))
                sink.flush()
                return
