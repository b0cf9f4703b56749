"""Curves of Lee and Kifer: what is recorded is not measured again, and ratios are of pairs."""

import json

import pytest

from benchmarks.speed import clipping_methods
from benchmarks.speed.clipping_methods import METHODS, Case


def test_every_method_takes_a_step_of_every_kind_of_case():
    seconds = clipping_methods.measure(Case("7", "mlp", 4, "layers", 3), METHODS, repeat=2)
    assert list(seconds) == list(METHODS)
    assert all(len(samples) == 2 and min(samples) > 0 for samples in seconds.values())


def test_a_ratio_is_the_median_of_rounds_beside_each_other():
    seconds = {"plain": [1.0, 2.0, 4.0], "loop": [3.0, 4.0, 20.0], "bookkeeping": [1.0, 1.0, 4.0]}
    assert clipping_methods.over_plain(seconds, "loop") == 3.0
    record = {"case": Case("9", "resnet18", 32, "size", 64)._asdict(), "seconds": seconds}
    head, row = clipping_methods.table([record], {"resnet18": "ResNet-18"})
    assert dict(zip(head, row, strict=True))["loop over bookkeeping"] == "3.0"
    assert row[:5] == ["9", "ResNet-18", "32", "size 64", "2000.0"]
    assert row[6] == "no memory"


def test_what_is_recorded_is_not_measured_again(tmp_path, monkeypatch, capsys):
    measured = []

    def isolated(function, case, methods, repeat):
        measured.append(case)
        return {method: [1.0] * repeat for method in methods}

    monkeypatch.setattr(clipping_methods, "run_isolated", isolated)
    path = tmp_path / "record.jsonl"
    for _ in range(2):
        clipping_methods.main(["--quick", "--json", str(path)])
        assert len(measured) == 2 == len(path.read_text().splitlines())
    clipping_methods.main(["--figures", "9", "--json", str(path)])
    sizes = [json.loads(line)["case"]["value"] for line in path.read_text().splitlines()[2:]]
    assert sizes == [32, 64, 128, 256]


@pytest.mark.parametrize("case", clipping_methods.cases(), ids=str)
def test_every_case_has_a_model_that_takes_its_argument(case):
    from benchmarks.models import MODELS

    builder = MODELS[case.model]
    assert not case.argument or case.argument in builder.__annotations__
