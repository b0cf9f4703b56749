"""Hooks of mkdocs: pages that are not in this folder, and links that lead out of it.

Examples become pages, the API reference is made of the names in each `__all__`, and a public name
without a docstring fails the build.
"""

import posixpath
import re
import sys
from pathlib import Path

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from examples.notebook import to_markdown  # noqa: E402

OUTSIDE = ("benchmarks/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
MODULES = ("algorithms", "auditing", "diagnostics", "extend", "layers")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files, config):
    """Adds the pages that are made."""
    for path in OUTSIDE:
        files.append(File.generated(config, path, content=(ROOT / path).read_text()))
    examples = ROOT / "examples"
    index = (examples / "README.md").read_text()
    files.append(File.generated(config, "examples/README.md", content=index))
    for path in sorted(examples.glob("*.py")):
        if re.search(r"^# %%", path.read_text(), re.MULTILINE):
            page = f"examples/{path.stem}.md"
            files.append(File.generated(config, page, content=to_markdown(path)))
    package = griffe.load(
        "tf_lowrank_dp",
        search_paths=[ROOT],
        resolve_aliases=True,
        extensions=griffe.load_extensions(ROOT / "docs" / "doctests.py"),
    )
    for name in ("tf_lowrank_dp", *MODULES):
        module = package if name == "tf_lowrank_dp" else package[name]
        files.append(File.generated(config, f"api/{name}.md", content=reference(module)))
    return files


def reference(module):
    """The page of a public module.

    Raises:
        PluginError: a public name has no docstring.
    """
    lines = [f"# {module.path}", "", module.docstring.value, ""]
    for name in module.exports:
        described = module[name]
        if described.is_module and name in described.members:
            described = described[name]  # a function, in a file that is named after it
            place = described.path
        else:
            place = f"{module.path}.{name}"
        if not described.has_docstring:
            raise PluginError(f"{module.path}.{name} is public and has no docstring.")
        if not described.is_module:
            lines += [f"::: {place}", ""]
    return "\n".join(lines)


def on_page_markdown(markdown, page, config, files):
    """Links lead to pages and pictures of the site; those to other files become their names."""
    source = page.file.src_uri
    here = posixpath.dirname(source)
    outside = source in OUTSIDE or source.startswith("examples/")
    folder = here if outside else posixpath.join("docs", here)

    def of_site(link):
        image, text, target, anchor = link.groups()
        place = posixpath.normpath(posixpath.join(folder, target)).removeprefix("docs/")
        for name in (place, place.removesuffix(".py") + ".md", posixpath.join(place, "README.md")):
            if files.get_file_from_path(name) is not None:
                return f"{image}[{text}]({posixpath.relpath(name, here or '.')}{anchor or ''})"
        return f"{image}[{text}]({target})" if image else text

    return _LINK.sub(of_site, markdown)
