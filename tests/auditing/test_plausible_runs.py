"""What an attacker finds in the runs of plausible users stays below what they report."""

import pytest

from tests.auditing.plausible_runs import (
    with_a_shared_encoder,
    with_dropout,
    with_passes_left_early,
)

RUNS = 12  # docs/auditing.md has the figures of 40


@pytest.mark.parametrize("run", [with_dropout, with_a_shared_encoder, with_passes_left_early])
def test_an_audit_stays_below_what_is_reported(run):
    found = run(RUNS)
    assert found.audit().epsilon < found.epsilon
