"""What an attacker finds in the runs of plausible users stays below what they report."""

import pytest

from tests.auditing import plausible_runs

RUNS = 12  # docs/auditing.md has the figures of 40


@pytest.mark.parametrize("run", plausible_runs.RUNS)
def test_an_audit_stays_below_what_is_reported(run):
    found = run(RUNS)
    assert found.audit().epsilon < found.epsilon
