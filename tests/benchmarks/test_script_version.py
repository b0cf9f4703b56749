"""Records tell the version of their script; those of earlier versions are said to be stale."""

import json

import pytest

from benchmarks.reproductions import accuracy
from benchmarks.results import pages, recorded, script_version
from benchmarks.results.records import Records
from benchmarks.results.report import origin
from benchmarks.results.script_version import ROOT, digest, made_by, mark, note, state

SCRIPT = '''"""Docstring."""

LIMIT = 3  # a comment
"""What it is."""


def f(a: int, b=None, *c) -> str:
    """Docstring."""
    return f"{a + LIMIT:>8}" "and" if a else None


class A:
    """Docstring."""

    x = [1, "two", None, ...]
'''
SAME = [
    SCRIPT.replace("# a comment", ""),
    SCRIPT.replace("What it is", "Something else"),
    SCRIPT.replace('    """Docstring."""\n', ""),
    SCRIPT.replace('"two"', "'two'"),
    SCRIPT.replace("a: int, b=None, *c", "\n    a: int,\n    b=None,\n    *c,\n"),
]
OTHERS = [
    SCRIPT.replace("LIMIT = 3", "LIMIT = 4"),
    SCRIPT.replace("b=None", "b=0"),
    SCRIPT.replace("else None", "else LIMIT"),
    SCRIPT.replace("f(a", "g(a"),
    SCRIPT.replace('"two"', '"three"'),
    SCRIPT.replace("None, ...", "..., None"),
    SCRIPT.replace(":>8", ":<8"),
]


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script below the root that names are relative to."""
    monkeypatch.setattr(script_version, "ROOT", tmp_path)
    path = tmp_path / "folder" / "script.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("source", SAME)
def test_comments_docstrings_and_formatting_are_not_in_the_version(source):
    assert source != SCRIPT and digest(source) == digest(SCRIPT)


@pytest.mark.parametrize("source", OTHERS)
def test_code_is_in_the_version(source):
    assert source != SCRIPT and digest(source) != digest(SCRIPT)


def test_the_version_is_the_same_in_every_version_of_python():
    assert digest(SCRIPT) == "16ed6e3bd6f4727a"


def test_a_record_is_stale_once_the_code_of_its_script_changes(script):
    record = {"script": made_by(script)}
    assert record["script"]["name"] == "folder/script.py" and state(record) == "current"
    script.write_text("# A remark.\n" + SCRIPT)
    assert state(record) == "current" and mark([record]) == ""
    script.write_text(OTHERS[0])
    assert state(record) == "stale" and mark([{}, record]) == " (earlier script)"
    script.unlink()
    assert state(record) == "stale"


def test_a_package_is_all_of_its_files(script):
    record = {"script": made_by(script.parent)}
    assert state(record) == "current"
    (script.parent / "other.py").write_text("x = 1\n")
    assert state(record) == "stale"


def test_records_from_before_are_unknown_and_this_is_said_once(script):
    current = {"script": made_by(script)}
    assert state({}) == "unknown" and mark([{}]) == ""
    assert note([{}, {}]).startswith("\nAll of these were made before")
    assert note([{}, current]).startswith("\nSome of these") and note([current]) == ""


@pytest.mark.parametrize("before", [None, {"name": "folder/script.py", "version": "earlier"}])
def test_what_an_earlier_script_recorded_is_not_run_again(script, tmp_path, before):
    path = tmp_path / "record.json"
    old = {"settings": {"seed": 0}, "accuracy": 0.5} | ({"script": before} if before else {})
    path.write_text(json.dumps({"environment": {}, "runs": [old]}))
    records = Records(path, origin(script))
    assert records.get({"seed": 0}, lambda: pytest.fail("run again")) == old
    records.get({"seed": 1}, lambda: {"accuracy": 0.7})
    runs = json.loads(path.read_text())["runs"]
    assert [state(run) for run in runs] == ["stale" if before else "unknown", "current"]


def test_every_script_that_records_tells_its_version():
    scripts = [
        path for path in (ROOT / "benchmarks").rglob("*.py") if '"--json"' in path.read_text()
    ]
    assert len(scripts) > 10
    silent = [path for path in scripts if "ORIGIN" not in path.read_text()]
    assert all('"script"' in path.read_text() for path in silent)  # as its programs tell it
    assert {path.name for path in silent} == {"train.py"}


def test_tables_and_the_list_say_what_is_stale(tmp_path, monkeypatch):
    found = recorded.lines("fit_time")
    current = accuracy.ORIGIN["script"]
    found[0]["script"] = current | {"version": "earlier"}
    found[1]["script"] = current
    for run in found[2:]:
        run.pop("script", None)
    (tmp_path / "fit_time.jsonl").write_text("".join(json.dumps(run) + "\n" for run in found))
    for module in (recorded, pages):
        monkeypatch.setattr(module, "RECORDS", tmp_path)
    rows = pages.fit_time_table().splitlines()
    assert [" (earlier script) |" in row for row in rows[2:5]] == [True, False, False]
    assert rows[-1].startswith("Some of these were made before")
    assert list(pages.states()) == [
        f"fit_time.jsonl: 1 current, 1 stale, {len(found) - 2} unknown (lines 1)"
    ]
