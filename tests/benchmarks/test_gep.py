"""The scripts that repeat the experiments of the GEP paper run, on a few random numbers."""

import json

import numpy as np
import pytest

from benchmarks.reproductions import gep_accuracy, gep_sst2
from benchmarks.reproductions.sst2 import Split
from benchmarks.speed import gep_cost

EXAMPLES = 64


def split(num_features, classes):
    generator = np.random.default_rng(0)
    x = generator.random((EXAMPLES, num_features), dtype="float32")
    return x, generator.integers(0, classes, EXAMPLES).astype("int32")


def table(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]


def test_accuracies_are_tabled_recorded_and_not_measured_again(tmp_path, monkeypatch, capsys):
    images = split(784, 10)
    data = gep_accuracy.Data(images, images, images, images[0])
    monkeypatch.setattr(gep_accuracy, "load_data", lambda args: data)
    monkeypatch.setattr(gep_accuracy, "METHODS", ("dpsgd", "gep"))
    monkeypatch.setattr(gep_accuracy, "MODEL_OF", {"mnist": "mlp"})
    monkeypatch.setattr(gep_accuracy, "noise_multiplier", lambda *_, **__: 2.0)
    arguments = ["table1", "--public-images", "none", "--json", str(tmp_path / "gep.json")]
    arguments += ["--epsilons", "5", "--learning-rates", "0.1", "--seeds", "0", "--steps", "2"]
    arguments += ["--batch-size", "16", "--microbatch-size", "16", "--refresh-every", "2"]
    gep_accuracy.main(arguments)
    rows = table(capsys)
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| dpsgd", "| gep"]
    assert [row.split(" | ")[-1] for row in rows[2:]] == ["96.8 |", "97.9 |"]
    runs = json.loads((tmp_path / "gep.json").read_text())["runs"]
    assert runs[0]["epsilon"] == runs[1]["epsilon"] > 0
    assert all(0 < run["anchor_residual"]["projection_error"] < 1 for run in runs[1:])
    missed = [row.split(" | ")[-2] for row in rows[2:]]
    assert missed == ["", f"{runs[1]['anchor_residual']['projection_error']:.2f}"]

    monkeypatch.setattr(gep_accuracy, "train", None)
    gep_accuracy.main(arguments)
    assert rows == table(capsys)


@pytest.mark.parametrize("experiment", ["table5", "table6", "figure6"])
def test_each_experiment_varies_one_thing(experiment):
    cases = gep_accuracy.cases_of(experiment, [2.0, 8.0])
    assert len(set(cases)) == len(cases) and {case.epsilon for case in cases} == {8.0}
    varied = [
        name for name in gep_accuracy.Case._fields if len({getattr(c, name) for c in cases}) > 1
    ]
    assert (
        set(varied) - {"method"}
        == {
            "table5": {"public", "labels"},
            "table6": {"num_public"},
            "figure6": {"num_bases"},
        }[experiment]
    )


def test_linear_classifiers_are_tabled(monkeypatch, capsys):
    features = split(8, 2)
    data = gep_sst2.Data(features, features[0], features, features)
    monkeypatch.setattr(gep_sst2, "load", lambda args: data)
    monkeypatch.setattr(gep_sst2, "noise_multiplier", lambda *_, **__: 2.0)
    arguments = ["--epsilons", "1", "--learning-rates", "0.1", "--seeds", "0"]
    gep_sst2.main([*arguments, "--steps", "2", "--batch-size", "16"])
    rows = table(capsys)
    methods = [row.split(" | ")[0] for row in rows[2:]]
    assert methods == ["| np", "| dpsgd", "| b-gep", "| gep"]


def test_no_phrase_is_public_and_private():
    train = Split(np.array([[1, 5, 2, 0], [1, 6, 7, 2]]), np.array([0, 1]))
    phrases = [[1, 5, 2, 0, 0, 0], [1, 5, 6, 2, 0, 0], [1, 6, 7, 8, 9, 2]]  # the last one: cut
    found = gep_sst2.without(Split(np.array(phrases), np.array([0, 1, 1])), train)
    assert found.tokens.tolist() == [phrases[1]] and found.labels.tolist() == [1]


def test_the_parts_of_a_step_and_the_reference_of_its_memory_run():
    case = gep_cost.Case(batch=8, anchors=16, num_bases=12)
    parts = gep_cost.parts_of(case)
    assert list(parts)[:2] == ["private pass (8)", "public pass (16)"] and len(parts) == 6
    found = gep_cost.timed({**parts, "reference": gep_cost.materialising_step(case)}, repeat=1)
    assert all(wall > 0 and processor > 0 for wall, processor in found.values())


def test_table_4_counts_operations_and_numbers():
    table = gep_cost.table_4(gep_cost.Case(batch=8, anchors=16, num_bases=12))
    pairs = [(1, 1040), (4, 8224), (6, 16416), (1, 330)]
    assert table["parameters"] == 26010
    assert table["operations"] == sum(2 * 16 * k * p + p * k * k for k, p in pairs)
