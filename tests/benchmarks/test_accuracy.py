"""How accuracy is compared: one grid for all, chosen on held-out images, runs done once."""

import json

import keras
import numpy as np
import pytest

from benchmarks.reproductions import accuracy, ranks, resnet
from benchmarks.results.script_version import state

DATA = tuple(
    (np.random.default_rng(0).random((rows, 28, 28, 1), "float32"), np.arange(rows) % 10)
    for rows in (accuracy.HELD_OUT + 64, 32)
)


@pytest.fixture
def fake(monkeypatch):
    """Accuracies that are best at a rate of 2 held out, and at 1 on test images."""
    done = []

    def accuracies(task, data, method, activation, epsilon, rate, seed, steps):
        done.append((method, rate, seed))
        held = {0.5: 0.1, 1.0: 0.5, 2.0: 0.9, 4.0: 0.3}[rate]
        return {"held_out": held, "test": 0.99 if rate == 1.0 else 0.5 + seed / 100}

    monkeypatch.setattr(accuracy, "accuracies", accuracies)
    monkeypatch.setattr(accuracy, "load_images", lambda name, folder: DATA)
    return done


def test_held_out_images_choose_the_rate_and_test_images_choose_nothing(fake):
    found = accuracy.tuned(accuracy.Runs(None, None), "mnist", "dpsgd", "relu", 1.0, seeds=[0, 1])
    assert [record["settings"]["rate"] for record in found] == [2.0, 2.0]
    assert [record["test"] for record in found] == [0.5, 0.51]


def test_what_is_recorded_is_not_run_again(fake, tmp_path):
    path = tmp_path / "record.jsonl"
    for _ in range(2):
        runs = accuracy.Runs(path, None)
        accuracy.tuned(runs, "mnist", "dpsgd", "relu", 1.0, seeds=[0, 1])
        assert len(fake) == 5 == len(path.read_text().splitlines())
        assert {state(record) for record in runs.records} == {"current"}
    accuracy.tuned(runs, "mnist", "dpsgd centred", "relu", 1.0, seeds=[0, 1])
    assert len(fake) == 10


def test_the_table_holds_the_mean_at_the_chosen_rate(fake):
    runs = accuracy.Runs(None, None)
    accuracy.tuned(runs, "mnist", "dpsgd", "relu", 1.0, seeds=[0, 1])
    assert "| 2 | 50.50 (50.00 to 51.00) | 2 |" in accuracy.table(runs.records)[-1]


@pytest.mark.parametrize(
    ("task", "method"),
    [
        *((task, "dpsgd centred") for task in accuracy.TASKS),
        ("cifar10", "dpsgd centred x4"),
        *(("cifar10-short", method) for method in ranks.OTHERS),
    ],
)
def test_a_run_spends_what_it_may_and_evaluates_both_parts(task, method):
    chosen = accuracy.TASKS[task]
    shape = chosen.network("relu").input_shape[1:]
    data = tuple((np.resize(x, (len(x), *shape)), y) for x, y in DATA)
    small = chosen._replace(batch_size=8)
    found = accuracy.accuracies(small, data, method, "relu", 3.0, 1.0, 0, steps=1)
    assert 0 < found["epsilon_spent"] <= 3.0
    assert 0 <= found["held_out"] <= 1 and 0 <= found["test"] <= 1
    assert json.dumps(found)


def test_networks_have_the_sizes_that_are_said():
    said = {"mnist": 26e3, "cifar10": 94e3, "cifar10-resnet8": 78e3, "cifar10-resnet8-biases": 78e3}
    tasks = accuracy.TASKS | resnet.TASKS
    found = {name: tasks[name].network("relu").count_params() for name in said}
    assert found == pytest.approx(said, rel=0.05)
    assert resnet.resnet("tanh", blocks=3).count_params() == pytest.approx(272e3, rel=0.05)
    assert isinstance(accuracy.TASKS["mnist-mlp"].network("tanh"), keras.Model)
