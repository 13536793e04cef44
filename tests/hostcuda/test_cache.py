"""The cache: read only where nobody else may write, and done without where nothing can be written."""

import errno
import grp
import math
import os
import pwd
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from miniflow.hostcuda import cache, cuda
from miniflow.hostcuda.cache import NOWHERE, cache_folder, keep
from miniflow.hostcuda.errors import CacheWarning


@pytest.fixture(autouse=True)
def chosen(tmp_path, monkeypatch):
    """A cache folder of the test's own, and a process that has not warned yet."""
    monkeypatch.setattr(cache, "WARNED", [])
    monkeypatch.setenv("MINIFLOW_CACHE_DIR", str(tmp_path / "chosen"))
    return tmp_path / "chosen"


def new_kernel():
    @cuda.jit(check=False)
    def kernel(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 3 * i

    return kernel


def run(kernel):
    """The kernel's result, and what was warned of on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = cuda.to_device(np.zeros(40, np.int64))
        kernel[2, 32](out)
    np.testing.assert_array_equal(out.copy_to_host(), 3 * np.arange(40))
    return [str(warning.message) for warning in caught]


def test_a_folder_is_made_for_the_user_alone(chosen):
    folder = cache_folder()
    assert folder == chosen / "hostcuda" and folder.stat().st_mode & 0o777 == 0o700
    assert run(new_kernel()) == [] and len(list(folder.glob("kernel_*.py"))) == 1


def test_a_planted_kernel_is_not_executed(chosen, tmp_path):
    """A file that a first run left there is replaced by somebody else, to whom the folder was opened."""
    run(new_kernel())
    (made,) = (chosen / "hostcuda").glob("kernel_*.py")
    made.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n{made.read_text()}")
    (chosen / "hostcuda").chmod(0o777)
    (message,) = run(new_kernel())
    assert f"others may write to {chosen / 'hostcuda'}: delete it" in message and "MINIFLOW_CACHE_DIR" in message
    assert not (tmp_path / "executed").exists()
    assert run(new_kernel()) == []  # one warning is enough
    (chosen / "hostcuda").chmod(0o700)
    run(new_kernel())
    assert (tmp_path / "executed").exists()  # it would have been


def test_planted_machine_code_is_not_loaded(chosen, monkeypatch):
    run(new_kernel())
    (folder,) = (chosen / "numba").glob("hostcuda_*")
    folder.chmod(0o777)
    loaded = []
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "load", lambda self, key: loaded.append(self))
    (message,) = run(new_kernel())
    assert f"others may write to {folder}: delete it" in message and not loaded
    folder.chmod(0o700)
    run(new_kernel())
    assert loaded


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_folders_that_others_may_write(chosen, mode):
    (chosen / "hostcuda").mkdir(parents=True)
    (chosen / "hostcuda").chmod(mode)
    with pytest.warns(CacheWarning, match="compiled kernels are not kept .others may write to"):
        assert NOWHERE in cache_folder().parents


def test_a_folder_in_one_that_everybody_may_change(chosen):
    (chosen / "hostcuda").mkdir(parents=True, mode=0o700)
    chosen.chmod(0o777)
    with pytest.warns(CacheWarning, match=f"others may replace what is in {chosen}"):
        assert NOWHERE in cache_folder().parents
    chosen.chmod(0o1777)  # as /tmp: only the owner may replace
    assert cache_folder() == chosen / "hostcuda"


@pytest.mark.parametrize(
    ("name", "members", "is_safe"),
    [("{me}", [], True), ("{me}", ["{me}"], True), ("{me}", ["other"], False), ("staff", [], False), (None, [], False)],
)
def test_a_folder_in_one_that_a_group_may_change(chosen, monkeypatch, name, members, is_safe):
    """Where each user has a group of his own, of his name, `mkdir` lets it write; it has nobody else in it."""
    cache_folder()
    chosen.chmod(0o770)
    me = pwd.getpwuid(os.getuid()).pw_name

    def entry(number):
        if name is None:
            raise KeyError(number)
        return SimpleNamespace(gr_name=name.format(me=me), gr_mem=[member.format(me=me) for member in members])

    monkeypatch.setattr(grp, "getgrgid", entry)
    if is_safe:
        assert cache_folder() == chosen / "hostcuda"
        return
    with pytest.warns(CacheWarning, match=f"others may replace what is in {chosen}"):
        assert NOWHERE in cache_folder().parents
    chosen.chmod(0o1770)
    assert cache_folder() == chosen / "hostcuda"


@pytest.mark.parametrize("mode", [0o700, 0o1755])
def test_a_folder_in_one_of_another_user(chosen, monkeypatch, mode):
    cache_folder()
    chosen.chmod(mode)
    stat = Path.stat

    def of_another(path, **options):
        status = list(stat(path, **options))
        status[4] += 12345 * (path == chosen)  # st_uid
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", of_another)
    with pytest.warns(CacheWarning, match=f"the owner of {chosen} may replace what is in it"):
        assert NOWHERE in cache_folder().parents


def test_folders_are_made_for_the_user_alone_whatever_the_umask(chosen, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIFLOW_CACHE_DIR", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        assert cache_folder("c/d") == tmp_path / "a" / "b" / "c" / "d"
    finally:
        os.umask(before)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c", "a/b/c/d")} == {0o700}


def test_a_folder_of_another_user(chosen, monkeypatch):
    cache_folder()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.warns(CacheWarning, match="hostcuda belongs to another user"):
        assert NOWHERE in cache_folder().parents


def test_a_link_is_followed_to_what_is_checked(chosen, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    chosen.mkdir()
    (chosen / "hostcuda").symlink_to(tmp_path / "open")
    with pytest.warns(CacheWarning, match=f"others may write to {tmp_path / 'open'}"):
        assert NOWHERE in cache_folder().parents


def test_a_folder_that_cannot_be_made(chosen):
    chosen.write_text("a file")
    (message,) = run(new_kernel())
    assert "compiled kernels are not kept" in message and "Not a directory" in message
    assert run(new_kernel()) == []


def test_a_user_without_a_home(monkeypatch):
    monkeypatch.delenv("MINIFLOW_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.warns(CacheWarning, match="compiled kernels are not kept"):
        assert NOWHERE in cache_folder().parents


FAILURES = [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")]


@pytest.mark.parametrize(("number", "words"), FAILURES, ids=["full", "read-only"])
def test_a_cache_that_cannot_be_written(chosen, monkeypatch, number, words):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cache.os, "replace", fail)
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "_save_index", fail)
    (message,) = run(new_kernel())
    assert words in message
    assert run(new_kernel()) == [] and not list(chosen.rglob("*.py")) and not list(chosen.rglob("*.nb?"))


def test_a_disk_that_fills_up_while_machine_code_is_written(chosen, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "_save_data", full)
    (message,) = run(new_kernel())
    assert "No space left on device" in message and list(chosen.rglob("kernel_*.py"))
    assert run(new_kernel()) == []


def test_a_full_disk_leaves_no_half_written_file(chosen, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = cache_folder()
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        assert keep(folder / "kernel.py", "text") == "text"
    assert not list(folder.iterdir())


def test_what_can_only_be_read_is_used(chosen, tmp_path):
    """As a cache that was filled when a container was made."""
    program = """
        import sys
        import numba.core.event as event
        from miniflow.hostcuda import cache, cuda
        import numpy as np

        class Count(event.Listener):
            started = 0
            def on_start(self, e): Count.started += 1
            def on_end(self, e): pass

        def fail(*args, **kwargs):
            raise OSError(30, "Read-only file system")

        if sys.argv[1:]:
            cache.os.replace = cache.caching.IndexDataCacheFile.save = cache.os.mkdir = fail

        @cuda.jit
        def kernel(out):
            out[cuda.grid(1)] = 5

        out = cuda.to_device(np.zeros(3))
        with event.install_listener("numba:compile", Count()):
            kernel[1, 3](out)
        print(out.copy_to_host(), Count.started, "numba.np.linalg" in sys.modules)
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    environment = os.environ | {"MINIFLOW_CUDA": "host", "PYTHONWARNINGS": "error::UserWarning"}
    first, second = (
        subprocess.run([sys.executable, str(path), *a], env=environment, capture_output=True, text=True, timeout=300)
        for a in ([], ["read-only"])
    )
    assert first.stdout.startswith("[5. 5. 5.]") and first.stdout.endswith(" True\n"), first.stderr
    assert second.stdout == "[5. 5. 5.] 0 False\n", second.stderr  # nor does numba prepare for compiling


def test_machine_code_of_the_package_is_kept_in_the_cache_folder(chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "of numba"))
    own = numba.njit(cache=True)(cache_folder)
    assert Path(own._cache.cache_path).parent == chosen / "numba"
    other = numba.njit(cache=True)(run)
    assert Path(other._cache.cache_path).parent == tmp_path / "of numba"
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    other = numba.njit(cache=True)(run)
    assert Path(other._cache.cache_path) == Path(__file__).parent / "__pycache__"


def test_recursion_in_a_second_process(chosen, tmp_path):
    """numba keeps the machine code of functions that call themselves in a form that crashes when it is loaded."""
    program = """
        import numpy as np
        from miniflow.hostcuda import cuda

        @cuda.jit(device=True)
        def factorial(n):
            return 1 if n == 0 else n * factorial(n - 1)

        @cuda.jit
        def kernel(out):
            out[0] = factorial(4)

        out = np.zeros(1)
        kernel[1, 1](out)
        print(out)
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    environment = os.environ | {"MINIFLOW_CUDA": "host"}
    for _ in range(2):
        ran = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=300)
        assert ran.stdout == "[24.]\n", ran.stderr


def test_a_constant_of_a_helper_that_changes_between_processes(tmp_path):
    program = """
        import numba
        import numpy as np
        from miniflow.hostcuda import cuda

        FACTOR = {factor}

        @numba.njit
        def scaled(x):
            return x * FACTOR

        @cuda.jit
        def kernel(out):
            out[0] = scaled(2.0)

        out = np.zeros(1)
        kernel[1, 1](out)
        print(out[0], flush=True)
    """
    forks = """
        import os
        import runpy
        import sys
        import miniflow.hostcuda.compile  # once for all

        for path in sys.argv[1:]:
            if not (child := os.fork()):
                os.replace(path, "program.py")
                runpy.run_path("program.py")
                os._exit(0)
            os.waitpid(child, 0)
    """
    for factor in (3, 4):
        (tmp_path / f"{factor}.py").write_text(textwrap.dedent(program).format(factor=factor))
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(forks), "3.py", "4.py"], env=os.environ | {"MINIFLOW_CUDA": "host"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.stdout == "6.0\n8.0\n", ran.stderr


FUNCTIONS_IN_PROCESSES = """
    import os
    import numpy as np
    from miniflow.hostcuda import host as cuda
    from miniflow.hostcuda.host import libdevice

    @cuda.jit
    def erf(out, x):
        out[0] = libdevice.erf(x[0])

    @cuda.jit
    def log(out, x):
        out[0] = libdevice.log(x[0])

    @cuda.jit
    def both(out, x):
        out[0] = libdevice.erf(x[0]) + 2 * libdevice.log(x[0])

    for kernel in (erf, log, both):
        if not (child := os.fork()):
            out = cuda.device_array(1)
            kernel[1, 1](out, cuda.to_device(np.array([0.5])))
            print(out.copy_to_host()[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
"""


def test_functions_that_several_processes_compiled_stay_apart(chosen, tmp_path):
    """Those two are closures of one definition, and the first functions that their processes compile."""
    script = tmp_path / "functions.py"
    script.write_text(textwrap.dedent(FUNCTIONS_IN_PROCESSES))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    erf, log = math.erf(0.5), math.log(0.5)
    np.testing.assert_allclose([float(n) for n in ran.stdout.split()], [erf, log, erf + 2 * log], rtol=1e-14)


def test_functions_of_the_package_that_a_kernel_calls_are_kept_with_it(chosen):
    """A second process finds the machine code of a kernel that draws random numbers by functions of numba."""
    program = "import miniflow as flow; flow.manual_seed(1); print(flow.rand(5, device='cuda').tolist())"
    environment = os.environ | {"MINIFLOW_CUDA": "host"}

    def ran():
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300
        )
        codes = chosen.rglob("uniform_*.nbc")
        return done.stdout, done.stderr, {path: path.stat().st_mtime_ns for path in codes}

    first, second = ran(), ran()
    assert first == second and first[0].startswith("[0.") and len(first[2]) == 1
