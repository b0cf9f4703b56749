"""Public tutorials, guides and books train with the README's two lines, or are told why not."""

import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.compatibility.case import SAMPLING, Run, train
from tests.compatibility.page import BEGIN, PAGE, tables
from tests.compatibility.public_examples import EXAMPLES


def check(model, before):
    """All weights were released with noise, and the steps were counted."""
    assert tfdp.privacy_spent(model, 1e-5) > 0
    assert model.trainable_variables
    for variable in model.trainable_variables:
        assert np.all(np.isfinite(variable)), variable.path
        if id(variable) in before:
            assert np.any(np.array(variable) != before[id(variable)]), variable.path


def trains(run, statement):
    before = {id(variable): np.array(variable) for variable in run.model.trainable_variables}
    train(run, statement)
    check(run.model, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_public_example_has_the_outcome_that_the_page_states(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # checkpoints and logs
    if example.outcome == SAMPLING:
        with pytest.raises(ValueError, match="Expected `sampling` to be"):
            train(example.build(), {})
    if not example.cause:
        return trains(example.build(), example.statement)
    with pytest.raises(ValueError, match=example.cause):
        train(example.build(), example.statement)
    remedied = example.remedied()
    if isinstance(remedied, Run):
        return trains(remedied, example.statement)
    return check(remedied, {})


def test_the_page_lists_the_examples_that_are_tested():
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) :] == tables()


def test_names_are_unique():
    names = [example.name for example in EXAMPLES]
    assert len(set(names)) == len(names) >= 40
