"""The site of the documentation: built without network or warning, it is whole, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import miniflow as flow

ROOT = Path(__file__).resolve().parent.parent
OFFLINE = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
INTERNAL = {f"miniflow.{name}" for name in ("SimpleNamespace", "defer", "with_placement", "nn.functional.Tensor")}


def test_summaries_are_whole(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import api

    api.collect()
    found = {name: api.summary(name) for names in api.PAGES.values() for name in names}
    assert len(found) > 600
    cut_short = re.compile(r".*(\.\.|,|\(| e\.g| i\.e)$|[^`]*(`[^`]*`[^`]*)*`[^`]*$")
    assert {name: text for name, text in found.items() if len(text) < 8 or cut_short.fullmatch(text)} == {}
    assert [text for text in found.values() if text.count("(") > len(re.findall(r"[])]", text))] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for name in ("sphinx", "myst_nb", "furo", "latex2mathml"):
        pytest.importorskip(name, reason=f'{name} is not installed: pip install -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(folder)]
    done = subprocess.run(command, env={**os.environ, **OFFLINE}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    pages = {path: path.read_text(encoding="utf-8") for path in site.resolve().rglob("*.html")}
    ids = {path: {"", *re.findall(r'\sid="([^"]+)"', text)} for path, text in pages.items()}
    assert len(pages) > 50
    for path, text in pages.items():
        for tag, link in set(re.findall(r'<(\w+)\s[^>]*?(?:href|src)="([^"]*)"', text)):
            url = urlsplit(link)
            if url.scheme == "data" or tag == "a" and url.scheme:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            assert not url.netloc and target.exists(), f"{path.name}: {link}"
            assert target not in ids or unquote(url.fragment) in ids[target], f"{path.name}: {link}"
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", styles)


@pytest.mark.slow
def test_every_lesson_and_every_public_name_is_there(site):
    lessons = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert lessons == {path.stem for path in (site / "lessons").glob("*.html")}
    pages = [*site.glob("api/**/*.html"), *site.glob("reference/*.html")]
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    there = set(re.findall(r"miniflow(?:\.\w+)+", text))
    owners = {"": flow, ".nn": flow.nn, ".nn.functional": flow.nn.functional, ".Tensor": flow.Tensor}
    names = {
        f"miniflow{space}.{name}"
        for space, owner in owners.items()
        for name in getattr(owner, "__all__", dir(owner))
        if name[0] != "_" and callable(getattr(owner, name))
    }
    missing = names - INTERNAL - there
    assert len(names) > 1000 and not missing, missing
    assert "<math" in (site / "lessons" / "02_autograd.html").read_text(encoding="utf-8")
