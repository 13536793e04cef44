"""The tests of this folder import `cases` and `both`, which stand beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
