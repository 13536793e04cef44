"""`pytest -p miniflow.hostcuda.pytest_plugin`: tests of programs that import `numba.cuda` or `numba_cuda_mlir.cuda` run
on the host executor where no GPU is usable; see `drop_in`. The header of the run says on which."""

from __future__ import annotations

import pytest

from miniflow.hostcuda.drop_in import install

installed = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of the tests is imported."""
    early_config.stash[installed] = install()


def pytest_report_header(config: pytest.Config) -> str:
    """The line of the header."""
    return f"numba.cuda: {config.stash[installed]}"
