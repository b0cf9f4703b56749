"""The built site: every page is in the navigation, links and pictures lead somewhere.

`mkdocs build --strict` is what CI runs as well; here its HTML is read, without help of its own.
"""

import html.parser
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tf_lowrank_dp as tfdp

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("mkdocs", reason="the extra `docs` installs mkdocs")


class Page(html.parser.HTMLParser):
    """What a page links to, shows, and can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.sources, self.ids = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found.get("id"), found.get("name")} - {None}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("img", "script", "link") and (found.get("src") or found.get("href")):
            self.sources.append(found.get("src") or found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def is_other(address):
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def test_links_and_pictures_lead_to_what_is_there(pages, site):
    broken = []
    for path, page in pages.items():
        base = site if path.name == "404.html" else path.parent
        for address in [*page.links, *page.sources]:
            if is_other(address):
                continue
            parts = urlsplit(address)
            place = base / unquote(parts.path).lstrip("/") if parts.path else path
            target = (place / "index.html" if place.is_dir() else place).resolve()
            if not target.exists():
                broken.append((path.name, address))
            elif parts.fragment and target in pages:
                if unquote(parts.fragment) not in pages[target].ids:
                    broken.append((path.name, address))
    assert broken == []


def test_nothing_is_loaded_from_other_hosts(pages):
    loaded = {source for page in pages.values() for source in page.sources if is_other(source)}
    assert loaded == set()


def test_every_page_can_be_reached_from_the_first(pages, site):
    seen, waiting = set(), [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in seen or path not in pages:
            continue
        seen.add(path)
        for address in pages[path].links:
            if not is_other(address) and urlsplit(address).path:
                waiting.append((path.parent / unquote(urlsplit(address).path)).resolve())
    assert {path.name for path in pages} - {path.name for path in seen} == {"404.html"}


def test_every_public_name_is_in_the_reference(pages, site):
    for module in ("tf_lowrank_dp", "algorithms", "auditing", "diagnostics", "extend", "layers"):
        owner = tfdp if module == "tf_lowrank_dp" else getattr(tfdp, module)
        ids = pages[site / "api" / f"{module}.html"].ids
        for name in owner.__all__:
            if not isinstance(getattr(owner, name), type(tfdp)):
                assert any(place.endswith(f".{name}") for place in ids), name


def test_a_public_name_without_a_docstring_fails_the_build(tmp_path, monkeypatch):
    """A package with one such name, read by the hook that writes the reference."""
    import griffe
    from mkdocs.exceptions import PluginError

    monkeypatch.syspath_prepend(ROOT / "docs")
    import hooks

    package = tmp_path / "bare"
    package.mkdir()
    (package / "__init__.py").write_text('"""Bare."""\n__all__ = ["f"]\ndef f(): ...\n')
    with pytest.raises(PluginError, match=r"bare\.f is public and has no docstring"):
        hooks.reference(griffe.load("bare", search_paths=[tmp_path]))
