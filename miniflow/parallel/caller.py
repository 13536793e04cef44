"""Where the user's program is, for messages."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from pathlib import Path

INNER = str(Path(__file__).parents[1]) + os.sep, contextlib.__file__


def line_of_caller() -> str:
    """`file:line: text` of the innermost line outside of the package that the main thread runs."""
    stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
    line = next((f for f in reversed(stack) if not f.filename.startswith(INNER)), stack[-1])
    return f"{line.filename}:{line.lineno}: {line.line}"
