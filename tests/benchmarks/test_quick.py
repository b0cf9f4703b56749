"""The quick mode of the long scripts: each has one, and its arguments are those it takes."""

import importlib
from pathlib import Path

import pytest

from benchmarks.reproductions import quick

ROOT = Path(__file__).resolve().parents[2]
DRAWN = {"gallery", "quick"}  # which train nothing


def test_every_script_that_trains_has_a_quick_mode():
    scripts = (ROOT / "benchmarks" / "reproductions").glob("*.py")
    trains = {path.stem for path in scripts if '__name__ == "__main__"' in path.read_text("utf-8")}
    named = {name.partition(".")[2] for name in quick.QUICK if name.startswith("reproductions")}
    assert named == trains - DRAWN


@pytest.mark.parametrize("name", quick.QUICK)
def test_its_arguments_are_those_of_the_script(name):
    script = importlib.import_module(f"benchmarks.{name}")
    _, _, module, *arguments = quick.command(name, "images.npz")
    assert module == script.__name__
    assert ("--public-images" in arguments) == (name in quick.NEED_PUBLIC_IMAGES)
    assert not hasattr(script, "parse_args") or script.parse_args(arguments)


def test_a_script_that_is_not_known_ends_it_with_a_sentence(capsys):
    with pytest.raises(SystemExit):
        quick.main(["sst3"])
    assert "expected accuracy, ranks" in capsys.readouterr().err


def test_what_fails_and_what_is_left_out_is_said(monkeypatch, capsys):
    rows = {"reproductions.mnist": "--optimizer none", "reproductions.gep_cifar10": ""}
    monkeypatch.setattr(quick, "QUICK", rows)
    with pytest.raises(SystemExit, match="failed: reproductions.mnist"):
        quick.main([])
    found = capsys.readouterr().out
    assert "reproductions.mnist: exit 2" in found
    assert "reproductions.gep_cifar10: left out, needs --public-images" in found
