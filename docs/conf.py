"""Settings of Sphinx: `sphinx-build -W docs docs/_build/html` builds the site, without a network."""

import os
import re
import shutil
import sys
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

os.environ["MINIFLOW_CUDA"] = "host"  # what is documented is the host executor, on machines with a GPU too
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import api  # noqa: E402

project, author = "miniflow", "The miniflow authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme, html_title, html_math_renderer = "furo", "miniflow", "mathml"
html_static_path, html_css_files = ["images"], ["site.css"]
html_show_copyright = html_copy_source = False
napoleon_custom_sections = ["Returns", "Yields", ("Attributes", "params_style")]  # Returns is prose
autodoc_inherit_docstrings = False
highlight_language = "none"  # formulas
autodoc_default_options = {"exclude-members": "rule"}  # of optimizers
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are shown as they are in the repository


shutil.rmtree(HERE / "lessons", ignore_errors=True)
(HERE / "lessons").mkdir()
for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):  # with the number before the title
    text = notebook.read_text(encoding="utf-8")
    (HERE / "lessons" / notebook.name).write_text(
        re.sub('"# (?=[A-Z])', f'"# {int(notebook.name[:2])}. ', text, count=1)
    )
shutil.rmtree(HERE / "api", ignore_errors=True)
for name, text in api.pages().items():
    (HERE / "api" / name).parent.mkdir(parents=True, exist_ok=True)
    (HERE / "api" / f"{name}.rst").write_text(text, encoding="utf-8")


def docstring(app, what, name, obj, options, lines) -> None:
    """A docstring as reStructuredText, with the other names of what it describes."""
    known = api.NAMES.get(obj, ()) if what in ("function", "method", "property", "class") else ()
    names = ", ".join(f"``{other}``" for other in known if other != name)
    start = [""] * (what == "property")  # else napoleon takes the words before a colon for its type
    lines[:] = start + api.escaped("\n".join(lines)).splitlines() + ["", f"Other names: {names}"] * bool(names)


def mathml(self, node, display="inline") -> None:
    """Mathematics as MathML, which browsers draw themselves."""
    self.body.append(convert(node.astext(), display=display))
    raise SkipNode


def source_page(app, pagename, templatename, context, doctree) -> None:
    """A page of source without viewcode's links back: they name a function by one module, and some have several."""
    if pagename.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app) -> None:
    app.connect("html-page-context", source_page)
    app.connect("autodoc-process-docstring", docstring, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", (mathml, None), (lambda self, node: mathml(self, node, "block"), None))
