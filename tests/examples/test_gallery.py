"""Every example runs with `--smoke`, as a user runs it, and becomes a notebook that compiles."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"
GALLERY = sorted(p.stem for p in FOLDER.glob("*.py") if "\n# %%" in p.read_text(encoding="utf-8"))
OWN_TESTS = {"quickstart", "minilm_sst2"}  # run by the files named after them

spec = importlib.util.spec_from_file_location("notebook", FOLDER / "notebook.py")
notebook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebook)


def run(name):
    return subprocess.run(
        [sys.executable, f"examples/{name}.py", "--smoke"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TFDS_DATA_DIR": "/nonexistent"},
        timeout=600,
    )


@pytest.mark.parametrize("name", sorted({*GALLERY} - OWN_TESTS))
def test_smoke_runs_without_data_and_says_what_was_spent(name):
    result = run(name)
    assert result.returncode == 0, result.stderr
    assert re.search(r"differentially private|epsilon [0-9.]+", result.stdout)


@pytest.mark.parametrize("name", GALLERY)
def test_it_becomes_a_notebook_and_a_page(name):
    path = FOLDER / f"{name}.py"
    made = json.loads(json.dumps(notebook.to_notebook(path)))
    assert made["nbformat"] == 4 and made["cells"][0]["source"].startswith("# ")
    code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
    for source in code:
        compile(source, name, "exec")
    # Nothing but comments and the docstring is left out.
    assert sum(source.count("\n") + 1 for source in code) > 20
    text = notebook.to_markdown(path)
    assert text.count("```") % 2 == 0 and all(source in text for source in code)


@pytest.mark.parametrize("name", GALLERY)
def test_a_full_run_is_recorded(name):
    output = (FOLDER / "outputs" / f"{name}.txt").read_text(encoding="utf-8")
    assert output.startswith(f"$ python examples/{name}.py")
    assert "--smoke" not in output and re.search(r"tensorflow [0-9.]+, keras [0-9.]+", output)


def test_the_index_names_all():
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+)\.py\)", index)) == set(GALLERY)
