"""Every Python block of every page runs, those of a page one after the other.

Those of README are run by `test_readme.py`.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def code_blocks(path):
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    if code_blocks(path)
}


def test_pages_with_code_are_found():
    assert {"docs/custom_loops.md", "docs/index.md", "docs/reports.md", "docs/faq.md"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for number, block in enumerate(code_blocks(PAGES[name]), start=1):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)
    trained = [namespace[name] for name in ("model", "discriminator") if name in namespace]
    if ".fit(" in "".join(code_blocks(PAGES[name])):
        assert all(namespace["tfdp"].privacy_spent(model, 1e-5) > 0 for model in trained)
