"""The one-run audit of users: a canary is a user, all of whose rows say the same."""

import pytest

from tests.auditing.canary_run import train

DELTA, CONFIDENCE, CANARIES, ROWS, STEPS = 1e-6, 0.9999, 600, 16, 8


def audit(name, noise_multiplier, as_users=True):
    """The bound of the audit, that of the library, and how well canaries are told apart."""
    settings = {"delta": DELTA, "num_steps": STEPS, "noise_multiplier": noise_multiplier}
    run = train(name, CANARIES, copies=ROWS, as_users=as_users, **settings)
    return run.audit("total", confidence=CONFIDENCE), run.epsilon


@pytest.mark.parametrize("name", ["DP-SGD", "RGP", "LSG"])
def test_no_audit_of_users_exceeds_the_reported_epsilon(name):
    found, reported = audit(name, noise_multiplier=1.2)
    assert found.epsilon < reported
    assert found.roc.auc > 0.6  # the attack sees something


def test_the_epsilon_of_single_rows_is_exceeded_where_a_canary_is_a_user():
    found, reported = audit("DP-SGD", noise_multiplier=8.0, as_users=False)
    assert found.epsilon > reported
