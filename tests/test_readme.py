"""README.md keeps its promises: its two commands are the ones that are checked, and its examples run."""

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import miniflow as flow

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FEATURES = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/features.md"])
def test_every_python_example_prints_what_it_says(tmp_path, monkeypatch, name):
    text = (ROOT / name).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    example = doctest.DocTestParser().get_doctest(examples, {"flow": flow, "nn": flow.nn}, name, name, 0)
    assert len(example.examples) > 10
    report = []
    failures = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append).failed
    assert not failures, "".join(report)


@pytest.mark.parametrize(("document", "least"), [("README.md", 20), ("CONTRIBUTING.md", 3)])
def test_every_file_it_names_exists(document, least):
    text = (ROOT / document).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    patterns = r"\]\(([^)#:]+)\)", r"`((?:miniflow|tests|tools|tutorials|docs)/(?!_build)[\w/.]*)`", r'src="([^"]+)"'
    named = {path for pattern in patterns for path in re.findall(pattern, prose)}
    assert len(named) >= least
    missing = sorted(path for path in named if not (ROOT / path).exists())
    assert not missing, f"{document} names {missing}"


def rows(heading):
    """The cells of the rows of the table under a heading."""
    section = FEATURES.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line[:2] == "| "][1:]


def test_the_operators_it_lists_exist():
    places = (flow, flow.nn.functional, flow.optim, flow.Tensor)
    named = [name for row in rows("Operators") for name in re.findall(r"`(\w+)`", row[1])]
    assert len(named) > 70
    assert not [name for name in named if not any(hasattr(place, name) for place in places)]


def test_the_reading_order_has_12_files():
    section = README.split("## Read the source\n")[1]
    assert re.findall(r"^(\d+)\. \[`", section, flags=re.MULTILINE) == [str(i) for i in range(1, 13)]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "images").glob("*.png")), ids=lambda path: path.stem)
def test_its_pictures_are_those_of_the_notebooks(path):
    pytest.importorskip("jupytext", reason='jupytext is not installed: pip install -e ".[test]"')
    pytest.importorskip("nbclient", reason='nbclient is not installed: pip install -e ".[test]"')
    spec = importlib.util.spec_from_file_location("tutorials_build", ROOT / "tutorials" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert path.name in README + FEATURES
    assert path.read_bytes() == build.picture(path.stem), "run: python tutorials/build.py"


def test_the_citation_has_the_version_of_the_package():
    version = re.search(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), flags=re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def run_extractor(folder):
    script = folder / ".ci" / "readme_commands"
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)


def copy_with(readme, folder):
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "readme_commands", folder / ".ci")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return run_extractor(folder)


def test_it_is_short():
    assert len(README.splitlines()) <= 220


def test_the_two_commands():
    result = run_extractor(ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "pip install -e . && python -m miniflow",
        'pip install -e ".[test]" && pytest',
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("&& pytest\n", "&& pytest || true\n"),
        ("&& pytest\n", "&& pytest\npip list\n"),
        ('```bash\npip install -e ".[test]" && pytest\n```\n', ""),
        ("pip install -e . &&", "pip install -e .;"),
    ],
)
def test_other_commands_are_refused(tmp_path, old, new):
    assert old in README
    result = copy_with(README.replace(old, new), tmp_path)
    assert result.returncode == 1
    assert "README.md: got the commands" in result.stderr and "expected" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="the check script is for bash")
def test_check_script_stops_when_a_command_fails(tmp_path):
    """Run with a `pip` that fails, so that the first command of README.md fails: everything must stop there."""
    (tmp_path / ".ci").mkdir()
    for name in ("run", "readme_commands"):
        shutil.copy(ROOT / ".ci" / name, tmp_path / ".ci")
    readme = "```bash\npip install -e . && python -m miniflow\npip install -e . && pytest\n```\n"
    (tmp_path / "README.md").write_text(readme)
    python = tmp_path / "python"  # makes an "environment" whose pip fails
    python.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"\nprintf "#!/bin/sh\\necho pip was called; exit 7\\n" >"$3/bin/pip"\n'
        f'chmod +x "$3/bin/pip"\nln -s {sys.executable} "$3/bin/python"\n'
    )
    python.chmod(0o755)
    env = {**os.environ, "PYTHON": str(python)}
    result = subprocess.run(["bash", tmp_path / ".ci" / "run"], env=env, capture_output=True, text=True, timeout=60)
    assert result.returncode == 7, result.stdout + result.stderr
    assert result.stdout.count("pip was called") == 1 and "all of it passed" not in result.stdout
