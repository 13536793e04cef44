"""The path of a call: from a function to its kernel and onto the tape. `dispatcher.py` is where to begin."""
