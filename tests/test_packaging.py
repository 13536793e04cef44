"""What is installed: every package is listed, and a wheel works from an empty folder with its data."""

import ast
import configparser
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.count_lines import sources

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def lines(text):
    return text.split("\n")[1:]


def test_every_package_is_listed(setup):
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in sources(ROOT / "miniflow")
        if path.name == "__init__.py"
    }
    assert sorted(lines(setup["options"]["packages"])) == sorted(found)


def test_floors_not_pins(setup):
    extras = setup["options.extras_require"]
    assert set(extras) == {"test", "notebooks", "docs", "vision", "mpi", "cuda", "serve"}
    needed = [Requirement(r) for key in extras for r in lines(extras[key])]
    needed += [Requirement(r) for r in lines(setup["options"]["install_requires"])]
    capped = [str(r.specifier) for r in needed if {part.operator for part in r.specifier} != {">="}]
    assert capped == ["<2.5"]  # of NumPy, where numba-cuda is installed, which needs `np.row_stack`


@pytest.mark.parametrize(
    ("python", "names"),
    [("3.10", ["numba-cuda", "numpy"]), ("3.11", ["numba-cuda-mlir"]), ("3.14", ["numba-cuda-mlir"])],
)
def test_one_compiler_for_gpus_is_installed(setup, python, names):
    requirements = map(Requirement, lines(setup["options.extras_require"]["cuda"]))
    assert [r.name for r in requirements if r.marker.evaluate({"python_version": python})] == names


def test_the_course_runs_where_miniflow_is_installed(setup):
    """What its graders and lessons import is required, without an extra; the script that builds the notebooks aside."""
    required = {re.split(r"\W*>=", line)[0] for line in lines(setup["options"]["install_requires"])}
    found = set()
    for path in {*(ROOT / "tutorials").rglob("*.py")} - {ROOT / "tutorials" / "build.py"}:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", ())]
            found |= {name.partition(".")[0] for name in names if isinstance(node, ast.Import | ast.ImportFrom)}
    assert {"numpy", "pytest"} <= found - sys.stdlib_module_names - {"miniflow", "tutorials"} <= required


def test_kernels_are_a_package_of_miniflow():
    code = "import miniflow.kernels, pathlib; print(pathlib.Path(miniflow.kernels.__file__).parent)"
    result = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=120)
    if "No module named 'miniflow'" in result.stderr:
        pytest.skip("miniflow is not installed in this environment: pip install -e .")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()) == ROOT / "miniflow" / "kernels"


@pytest.fixture
def clone(tmp_path):
    """A copy of what is installed, in a folder named as the package."""
    return copied_sources(tmp_path / "miniflow")


def copied_sources(folder):
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "miniflow", "kernels"):
        copy(ROOT / name, folder / name)
    (folder / "miniflow" / "kernels").symlink_to("../kernels")
    return folder


def test_a_clone_without_links_says_what_to_do(clone):
    """git on Windows writes the text of a link where it may not make one."""
    link = clone / "miniflow" / "kernels"
    link.unlink()
    link.write_text("../kernels")
    for name in ("miniflow", "miniflow.kernels.softmax"):
        command = [sys.executable, "-c", f"import {name}"]
        result = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=120)
        message = result.stderr.strip().split("\n")[-1]
        assert message.startswith("ImportError: miniflow/kernels is a link") and "git config core.symlinks" in message


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that `pip wheel .` builds, from a copy of the sources so that no build folder is left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = copied_sources(folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(folder), str(source)]
    if has_setuptools():
        command.insert(4, "--no-build-isolation")
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if result.returncode and "No matching distribution found for setuptools" in result.stderr:
        pytest.skip("pip cannot fetch setuptools, which builds the wheel, and it is not installed here")
    assert result.returncode == 0, result.stderr
    (path,) = folder.glob("*.whl")
    return path


def copy(source, target):
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        return
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy(path, target / path.relative_to(source))


def has_setuptools():
    from importlib import metadata

    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 69
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.slow
def test_wheel_holds_every_source_and_the_data(wheel):
    assert wheel.name == "miniflow_edu-0.1.0-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {str(path.relative_to(ROOT)) for path in sources(ROOT / "miniflow")}
    expected |= {"miniflow/data/mnist_5k.npz", "miniflow/data/MNIST_NOTICE.md"}
    assert expected <= names, sorted(expected - names)
    outside = {name for name in names if not name.startswith(("miniflow/", "miniflow_edu-0.1.0.dist-info/"))}
    assert not outside
    assert any(name.endswith("LICENSE") for name in names)

    assert len(names) == len(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
@pytest.mark.skipif(not has_setuptools(), reason="setuptools, which builds it, is not installed")
def test_the_source_distribution_holds_the_kernels_as_files(clone, tmp_path):
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=clone, check=True, capture_output=True, timeout=300)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        files = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    sources_of_kernels = {f"miniflow/{path.relative_to(ROOT)}" for path in (ROOT / "kernels").rglob("*.py")}
    assert len(sources_of_kernels) > 30 and all(files[name].isreg() for name in sources_of_kernels)


@pytest.mark.slow
def test_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(name).decode()
    assert "\nName: miniflow-edu\n" in text and "\nVersion: 0.1.0\n" in text and "Apache-2.0" in text
    assert "\nRequires-Python: >=3.10\n" in text and "# miniflow" in text


@pytest.mark.slow
def test_wheel_works_in_an_empty_folder(wheel, tmp_path):
    """In a fresh environment that sees this one's libraries, but not this checkout."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False, system_site_packages=False)
    (site,) = (environment / "lib").glob("python*/site-packages") if os.name == "posix" else ()
    zipfile.ZipFile(wheel).extractall(site)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = f"""
import sys
sys.path += {[path for path in sys.path if path.endswith("site-packages")]!r}
import miniflow as flow, miniflow.kernels
assert flow.__file__.startswith({str(site)!r}) and miniflow.kernels.__file__.startswith({str(site)!r})
images, labels = flow.data.mnist("test").tensors
model = flow.nn.Linear(784, 10)
loss = flow.nn.functional.cross_entropy(model(images.reshape(-1, 784)), labels)
loss.backward()
print(images.shape, model.weight.grad.shape)
"""
    python = environment / "bin" / "python"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"MINIFLOW_CACHE_DIR": str(tmp_path / "cache")}
    result = subprocess.run([python, "-c", code], cwd=empty, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "miniflow.Size([1000, 1, 28, 28]) miniflow.Size([10, 784])"
    assert not list(empty.iterdir())


class Environment:
    """A fresh virtual environment with pip, which sees the libraries of this one.

    Args:
        folder: a new one for all of its files.
    """

    def __init__(self, folder):
        venv.create(folder / "venv", with_pip=True)
        self.variables = dict(os.environ)
        self.variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
        self.variables["MINIFLOW_CACHE_DIR"] = str(folder / "cache")
        self.python = str(folder / "venv" / "bin" / "python")

    def run(self, *arguments, cwd="/", fails=False):
        command = [self.python, *map(str, arguments)]
        result = subprocess.run(command, cwd=cwd, env=self.variables, capture_output=True, text=True, timeout=600)
        assert bool(result.returncode) == fails, result.stderr
        return result.stderr if fails else result.stdout


LESSONS = sorted(path.parent for path in (ROOT / "tutorials").glob("*/solution.py"))


@pytest.mark.slow
def test_students_and_teachers_get_through_with_a_wheel(wheel, tmp_path):
    """Two lessons, others each time: the student has no clone, the teacher has the folders of the course."""
    environment = Environment(tmp_path / "environment")
    environment.run("-m", "pip", "install", "--quiet", "--no-deps", wheel)
    teacher, student, ada = tmp_path / "teacher", tmp_path / "student", tmp_path / "in" / "ada"
    for name in ("tutorials", "notebooks", "LICENSE"):
        copy(ROOT / name, teacher / name)
    environment.run("-m", "tutorials", "release", student, cwd=teacher)
    assert "No module named tutorials" in environment.run("-m", "tutorials", "list", fails=True)
    chosen = random.sample(LESSONS, 2)
    for lesson in chosen:
        environment.run("-m", "tutorials", "start", lesson.name, cwd=student)
        shutil.copy(lesson / "solution.py", student / "tutorials" / lesson.name / "student.py")
        lines = environment.run("-m", "tutorials", "check", lesson.name, cwd=student).splitlines()
        assert len(lines) > 3 and all(line.split()[1:] == ["passed"] for line in lines), (lesson.name, lines)
    listed = environment.run("-m", "tutorials", "list", cwd=student).splitlines()
    assert {line.split()[1] for line in listed if " done " in line} == {lesson.name for lesson in chosen}
    shutil.copytree(student / "tutorials", ada)
    environment.run("-m", "tutorials", "collect", ada.parent, tmp_path / "class", cwd=teacher)
    table = environment.run("-m", "tutorials", "grade", tmp_path / "class", cwd=teacher).splitlines()[2:]
    assert [row.split("|")[2].strip() for row in table] == sorted(lesson.name for lesson in chosen)
    assert all(row.endswith("|  |") for row in table), table
    environment.run("-m", "tutorials", "feedback", tmp_path / "class", cwd=teacher)
    passed = (tmp_path / "class" / "ada" / "feedback.md").read_text().count(": passed\n")
    assert passed == sum(int(row.split("|")[3].split()[0]) for row in table) > 7


USE = "import miniflow as flow; print(flow.softmax(flow.ones(4), 0)); print(flow.__file__)"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or not has_setuptools(), reason="setuptools, which builds it, is not installed")
@pytest.mark.parametrize("kind", ["editable", "wheel"])
def test_an_installation_works_in_every_folder_and_leaves_nothing_behind(kind, clone, tmp_path, request):
    environment = Environment(tmp_path / "environment")
    what = ["-e", clone] if kind == "editable" else [request.getfixturevalue("wheel")]
    environment.run("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", *what)
    (tmp_path / "empty").mkdir()
    folders = [clone.parent, clone, "/", tmp_path / "empty"]
    for folder in folders:
        assert environment.run("-c", USE, cwd=folder).strip().endswith("miniflow/__init__.py")
        assert "--epochs" in environment.run("-m", "miniflow", "--help", cwd=folder)
    environment.run("-I", "-m", "pip", "uninstall", "--yes", "--quiet", "miniflow-edu")
    for folder in ("/", tmp_path / "empty"):
        assert "No module named 'miniflow'" in environment.run("-c", "import miniflow", cwd=folder, fails=True)
    assert list((tmp_path / "environment" / "cache" / "numba").rglob("*.nbi"))
