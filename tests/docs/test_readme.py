"""What the documents promise: README's code runs, CI runs its commands, links lead somewhere."""

import re
import stat
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
)

QUICKSTART = 'pip install -e ".[examples]" && python examples/quickstart.py'
TESTS = 'pip install -e ".[test]" && pytest'


def code_blocks(text=README):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def test_it_has_at_most_110_lines_one_picture_and_15_lines_of_code():
    assert len(README.splitlines()) <= 110
    assert len(re.findall(r"^!\[", README, flags=re.MULTILINE)) == 1
    assert len(code_blocks()[0].splitlines()) <= 15


def test_the_code_of_the_readme_runs(capsys):
    namespace = {}
    spent = []
    for number, block in enumerate(code_blocks(), start=1):
        exec(compile(block, f"README.md, block {number}", "exec"), namespace)
        spent.append(namespace["tfdp"].privacy_spent(namespace["model"], 1e-5))
    printed = capsys.readouterr().out
    assert "1e-05)-differentially private" in printed
    assert 0 < spent[0] <= 3.0 and spent[-1] <= 6.0  # the blocks train the same model on


def test_the_commands_of_the_readme():
    for command in (QUICKSTART, TESTS):
        assert f"\n    {command}\n" in README
    assert (ROOT / "examples" / "quickstart.py").is_file()


def test_ci_runs_the_commands_of_the_readme():
    lines = [line.strip() for line in CI.splitlines()]
    assert 'pip install --quiet -e ".[test,docs]"' in lines
    assert {"pytest", "ruff check .", 'pytest --part "$part"'} <= set(lines)
    assert any(line.endswith("mkdocs build --strict --quiet") for line in lines)
    # pytest runs the quickstart as well.
    test = (ROOT / "tests" / "examples" / "test_quickstart.py").read_text(encoding="utf-8")
    assert '[sys.executable, "examples/quickstart.py", *arguments]' in test
    assert 'run("--smoke"' in test
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR


def test_the_extras_of_the_commands_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    documents = "".join((ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS)
    named = ",".join(re.findall(r'"\.\[([a-z,-]+)\]"', documents + CI))
    for extra in set(named.split(",")):
        assert extra in project["optional-dependencies"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document):
    path = ROOT / document
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document):
    """Names in backquotes that look like a path are relative to the root or to the package."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for name in re.findall(r"`([a-z_./]+/[a-z_]*(?:\.py)?)`", text):
        if "your_" not in name:
            assert (ROOT / name).exists() or (ROOT / "tf_lowrank_dp" / name).exists(), name


def test_the_changelog_has_an_unreleased_section():
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
