"""Several workers agree before they train, stop together, and end together."""

import math
import pickle
import re
import subprocess
import sys

import dp_accounting
import keras
import numpy as np
import pytest
from scipy import stats

import tf_lowrank_dp as tfdp
from tests.workers.behaviours import DEVIATION
from tests.workers.processes import ROOT, environment, once


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Two workers that the launcher has started, what they printed, and their folder."""

    def run(folder):
        command = [sys.executable, "-m", "tf_lowrank_dp.launch", "-n", "2"]
        done = subprocess.run(
            [*command, "tests/workers/behaviours.py", folder],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=900,
        )
        return folder, done

    return once(tmp_path_factory, "behaviours", run)


@pytest.fixture(scope="module")
def found(ended):
    folder, done = ended
    files = [folder / f"{index}.pickle" for index in range(2)]
    assert all(file.exists() for file in files), done.stdout[-4000:] + done.stderr[-2000:]
    return [pickle.loads(file.read_bytes()) for file in files]


DIFFERENT = {
    "clip": ("optimizer", "2.0"),
    "order of the rows": ("rows, in their order", ""),
    "model": ("model", "(8, 7)"),
    "steps": ("epochs and their steps", "7"),
    "versions": ("versions", "0.0"),
    "sharded": ("sharded", "True"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_refused_on_all_workers_and_nothing_is_spent(found, name):
    what, value = DIFFERENT[name]
    for worker in found:
        message, epsilon, moved = worker["disagreements"][name]
        assert message.startswith("Expected 2 workers that train one model on the same rows")
        assert re.search(
            rf"  {what}:\n    worker 0: .*\n    worker 1: .*{re.escape(value)}", message
        )
        assert epsilon == 0.0 and moved == 0.0


@pytest.mark.parametrize(
    "name, steps, epochs",
    [("a callback", 4, 1), ("TerminateOnNaN", 3, 1), ("EarlyStopping", 12, 2)],
)
def test_all_stop_at_the_step_at_which_one_stops(found, name, steps, epochs):
    assert [worker["stopping"][name][:2] for worker in found] == [(steps, epochs)] * 2


def test_all_stop_before_the_budget_that_one_has(found):
    [(steps, *_), (others, *_)] = [worker["stopping"]["PrivacyBudget"] for worker in found]
    assert 1 < steps == others < 24


@pytest.mark.parametrize("name", ["a callback", "TerminateOnNaN", "EarlyStopping", "PrivacyBudget"])
def test_weights_are_the_same_after_a_stop(found, name):
    weights = [worker["stopping"][name][2] for worker in found]
    assert weights[0].tobytes() == weights[1].tobytes()


def test_logs_of_an_epoch_are_the_chiefs(found):
    first, second = (worker["stopping"]["EarlyStopping"][3] for worker in found)
    assert first == second and len(first["loss"]) == 2


def test_noise_is_that_of_one_draw_and_the_same_on_all(found):
    noise = [worker["releases"]["noise"] for worker in found]
    assert noise[0].tobytes() == noise[1].tobytes()
    # The sample deviation of n normal numbers is off by 1 / sqrt(2 n) of itself: six of these.
    spread = 6 / math.sqrt(2 * noise[0].size)
    assert np.std(noise[0]) == pytest.approx(DEVIATION, rel=spread)


def test_sums_are_those_of_all_workers(found):
    for worker in found:
        assert worker["releases"]["sum"].tolist() == [3.0] * 3


@pytest.mark.parametrize("name, seen", [("nobody", "[0 2]"), ("both", "[2 2]")])
def test_a_step_without_one_source_of_noise_is_refused_on_all(found, name, seen):
    for worker in found:
        message = worker["releases"][name]
        assert "Expected one source of noise and 2 workers" in message and seen in message


def test_steps_count_once_over_several_runs(found):
    assert [worker["two runs"]["steps"] for worker in found] == [[12, 12, 24, 36]] * 2
    entry = [tfdp.accounting.Sampling.poisson(96, size) for size in (12, 24)]
    runs = [(entry[0], 24), (entry[0], 6), (entry[1], 6)]
    ledger = tfdp.accounting.PrivacyLedger(
        [tfdp.accounting.LedgerEntry(sampling, 1.0, steps=steps) for sampling, steps in runs]
    )
    for worker in found:
        assert worker["two runs"]["epsilon"] == pytest.approx(ledger.epsilon(1e-3), rel=1e-9)


def test_the_chief_alone_writes_files(ended, found):
    folder, _ = ended
    assert sorted(file.name for file in folder.glob("*.keras")) == ["model0.keras"]
    assert sorted(file.name for file in folder.glob("*.h5")) == ["weights0.weights.h5"]
    loaded = keras.models.load_model(folder / "model0.keras")
    assert loaded.optimizer.ledger.num_steps == 36


def test_every_row_is_drawn_by_one_worker_at_the_stated_rate(found):
    rows, rate, steps = 30, 0.2, 400
    counts = np.array([np.bincount(np.concatenate(w["draws"]), minlength=rows) for w in found])
    for index in range(2):
        assert np.flatnonzero(counts[index]).tolist() == list(range(index, rows, 2))
    # Each count is binomial: beyond five deviations once in two million.
    deviation = math.sqrt(steps * rate * (1 - rate))
    assert np.all(np.abs(counts.sum(axis=0) - steps * rate) < 5 * deviation)
    assert abs(counts.sum() - rows * steps * rate) < 5 * deviation * math.sqrt(rows)


def test_masks_of_workers_are_independent_of_each_other(found):
    """Both rows keep a weight in a quarter of cases, one of them in half."""
    for moved in (worker["masks"] for worker in found):
        rows = np.rint(2 * moved / moved.max())
        counts = np.bincount(rows.astype(int), minlength=3)
        assert stats.chisquare(counts, 400 * np.array([0.25, 0.5, 0.25])).pvalue > 1e-4


@pytest.mark.parametrize("place", ["loss", "constraint"])
def test_what_the_steps_of_one_worker_read_was_spent_for_all(found, place):
    """The chief stated 1.04, and the other one 14.16, for 14.19."""
    accountant = dp_accounting.pld.PLDAccountant()
    for noise_multiplier in (6.0, 7.0):
        accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier))
    step = dp_accounting.PoissonSampledDpEvent(12 / 96, dp_accounting.GaussianDpEvent(1.0))
    accountant.compose(step, 3)
    spent = [worker["sites"][place] for worker in found]
    assert spent == pytest.approx([accountant.get_epsilon(1e-3)] * 2, rel=1e-3)


def test_a_target_has_room_for_what_the_steps_of_any_worker_read(found):
    spent = [worker["sites"]["loss, within a target"] for worker in found]
    assert spent[0] == spent[1]
    assert 1.9 < spent[0] <= 2.0


def test_a_killed_worker_ends_the_others_with_a_sentence(ended, found):
    _, done = ended
    assert done.returncode != 0
    assert re.search(
        r"^\[0\] .*WorkerLostError: Expected all 2 workers to train on. Received: one that has "
        r"ended \(.+\)",
        done.stdout,
        re.MULTILINE,
    )
    [seconds] = re.findall(r"^\[0\] ended after ([0-9.]+) s", done.stdout, re.MULTILINE)
    assert float(seconds) < 30
