"""The ROC curve against scikit-learn and against counting; plots without and with matplotlib."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import tf_lowrank_dp.auditing
from tf_lowrank_dp.auditing import RocCurve


def some_scores(seed, ties):
    generator = np.random.default_rng(seed)
    scores = generator.normal(0.7, 1, 60), generator.normal(0, 1, 45)
    return [np.round(part, 0 if ties else 6) for part in scores]


@pytest.mark.parametrize("ties", [False, True])
def test_the_area_is_that_of_scikit_learn(ties):
    members, others = some_scores(0, ties)
    labels = np.repeat([1, 0], [len(members), len(others)])
    expected = roc_auc_score(labels, np.concatenate([members, others]))
    assert RocCurve.of(members, others).auc == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_rates_are_the_fractions_at_or_above_each_threshold(ties):
    members, others = some_scores(1, ties)
    roc = RocCurve.of(members, others)
    assert roc.thresholds[0] == np.inf
    for threshold, true, false in zip(
        roc.thresholds, roc.true_positive_rates, roc.false_positive_rates, strict=True
    ):
        assert true == pytest.approx(np.mean(members >= threshold))
        assert false == pytest.approx(np.mean(others >= threshold))
    assert roc.true_positive_rates[-1] == roc.false_positive_rates[-1] == 1.0


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("ties", [False, True])
def test_the_rate_at_a_false_positive_rate_is_the_best_of_all_thresholds_allowed(rate, ties):
    members, others = some_scores(2, ties)
    allowed = [t for t in [*members, *others, np.inf] if np.mean(others >= t) <= rate]
    expected = max(np.mean(members >= t) for t in allowed)
    found = RocCurve.of(members, others).true_positive_rate_at(rate)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("bad", [[], [[1.0]], [np.nan]], ids=["empty", "matrix", "nan"])
def test_what_is_no_list_of_numbers_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=r"Expected non_member_scores .*Received: .*Pass one"):
        RocCurve.of([1.0], bad)


def test_infinite_scores_are_scores():
    roc = RocCurve.of([np.inf, 1.0], [-np.inf, 0.0])
    assert roc.auc == 1.0


def test_the_plot_shows_the_curve_on_linear_and_on_logarithmic_axes():
    figure = RocCurve.of(*some_scores(3, False)).plot()
    assert [axes.get_xscale() for axes in figure.axes] == ["linear", "log"]
    for axes in figure.axes:
        assert len(axes.lines[1].get_xdata()) == 106
    figure.draw_without_rendering()


def test_without_matplotlib_only_the_plot_fails_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    roc = RocCurve.of([1.0], [0.0])
    with pytest.raises(ImportError, match="Expected matplotlib.*pip install matplotlib"):
        roc.plot()


def test_importing_the_package_needs_no_matplotlib():
    for path in Path(tf_lowrank_dp.auditing.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            assert "matplotlib" not in ast.unparse(node) or not isinstance(
                node, ast.Import | ast.ImportFrom
            )
