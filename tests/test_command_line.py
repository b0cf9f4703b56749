"""`python -m tf_lowrank_dp`, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dp_accounting
import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
BUDGET = ["plan", "--examples", "6000", "--epsilon", "3", "--delta", "1e-5"]


def rows(text):
    """The lines of numbers of a printed table."""
    lines = [line.split() for line in text.splitlines()]
    return [[float(cell) for cell in cells] for cells in lines if cells and cells[0].isdigit()]


def test_a_plan_keeps_the_budget_by_googles_accountant(capsys):
    sizes = ["--batch-sizes", "60", "600", "60000", "--epochs", "2", "4"]
    assert main([*BUDGET, *sizes, "--accountant", "rdp", "--examples-per-second", "100"]) == 0
    found = rows(capsys.readouterr().out)
    assert [row[:3] for row in found] == [
        [60, 2, 200], [60, 4, 400], [600, 2, 20], [600, 4, 40],
    ]  # fmt: skip
    for batch, _, steps, sigma, noise, signal, minutes in found:
        # Sigma is printed with three decimals, rounded up, and is at most 0.1 % too large.
        for rounded, fits in ((sigma, True), (sigma * 0.998 - 0.001, False)):
            gaussian = dp_accounting.GaussianDpEvent(rounded)
            event = dp_accounting.PoissonSampledDpEvent(batch / 6000, gaussian)
            accountant = dp_accounting.rdp.RdpAccountant().compose(event, int(steps))
            assert (accountant.get_epsilon(1e-5) <= 3) == fits
        assert noise == pytest.approx(sigma / batch, rel=1e-2)
        assert signal == pytest.approx(steps**0.5 * batch / sigma, rel=1e-2)
        assert minutes == pytest.approx(steps * batch / 6000, abs=0.06)


def test_a_budget_that_is_none_is_one_line_on_stderr():
    result = subprocess.run(
        [sys.executable, "-m", "tf_lowrank_dp", *BUDGET, "--epsilon", "-1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert result.returncode == 1
    assert "Expected `epsilon`" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("examples", "0"), ("examples", "-5"), ("examples-per-second", "-1"),
     ("examples-per-second", "nan")],
)  # fmt: skip
def test_numbers_that_are_none_of_data_are_one_line_on_stderr(option, value, capsys):
    assert main([*BUDGET, "--accountant", "rdp", f"--{option}", value]) == 1
    assert "Expected `" in capsys.readouterr().err


def test_a_report_of_a_file_is_that_of_the_model(tmp_path, capsys):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer(
        "sgd", l2_norm_clip=1.0, noise_multiplier=2.0, delta=1e-3, accountant="rdp"
    )
    model.compile(optimizer, "mse")
    model.fit(np.ones((32, 3)), np.ones((32, 2)), batch_size=8, epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    expected = tfdp.privacy_report(model, hyperparameter_search="none")
    arguments = ["report", str(tmp_path / "model.keras"), "--hyperparameter-search", "none"]

    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(expected.to_json())
    assert found["releases"][0]["steps"] == 4

    assert main(arguments) == 0
    assert capsys.readouterr().out == expected.to_markdown()


def test_a_file_that_does_not_exist_is_an_error(capsys):
    assert main(["report", "nothing.keras"]) == 1
    assert "nothing.keras" in capsys.readouterr().err


def test_a_file_without_a_ledger_is_not_reported_as_if_nothing_had_been_spent(tmp_path, capsys):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    assert main(["report", str(tmp_path / "model.keras"), "--delta", "1e-5"]) == 1
    assert "what was spent on it is not known" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "model.weights.h5"), "--delta", "1e-5"]) == 1
    assert "load them into the model" in capsys.readouterr().err


MODULE = """
import keras

@keras.saving.register_keras_serializable("of_a_user")
class Doubled(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""


def test_layers_of_ones_own_are_found_in_a_module_that_is_named(tmp_path):
    (tmp_path / "own_layers.py").write_text(MODULE)
    make = (
        "import keras, tf_lowrank_dp as tfdp, own_layers;"
        "layers = own_layers.Doubled(), keras.layers.Dense(2);"
        "model = tfdp.make_private(keras.Sequential([keras.Input((3,)), *layers]));"
        "optimizer = tfdp.DPSGDOptimizer('sgd', l2_norm_clip=1.0, noise_multiplier=1.0);"
        "model.compile(optimizer, 'mse');"
        "model.save('model.keras')"
    )
    report = ["-m", "tf_lowrank_dp", "report", "model.keras", "--delta", "1e-5"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = [
        subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=300,
        )
        for arguments in (["-c", make], report, [*report, "--import", "own_layers"])
    ]
    assert [result.returncode for result in done] == [0, 1, 0]
    assert "--import" in done[1].stderr and "Traceback" not in done[1].stderr
    assert "epsilon" in done[2].stdout
