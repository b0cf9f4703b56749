"""Attacks on one's own models: what they reveal, measured, beside what the accountant says.

An audit shows a lower bound on epsilon.  Above the reported epsilon it disproves the guarantee;
below it, it proves nothing.  Scores and losses of training examples are not private themselves.
"""

from tf_lowrank_dp.auditing.canaries import Canaries
from tf_lowrank_dp.auditing.losses import per_example_losses
from tf_lowrank_dp.auditing.many_run import ManyRunAudit, many_run_audit
from tf_lowrank_dp.auditing.membership import MembershipInference, membership_inference
from tf_lowrank_dp.auditing.one_run import (
    OneRunAudit,
    one_run_audit,
    one_run_epsilon,
    one_run_p_value,
)
from tf_lowrank_dp.auditing.roc import RocCurve
from tf_lowrank_dp.auditing.update_scores import update_scores

__all__ = [
    "Canaries",
    "ManyRunAudit",
    "MembershipInference",
    "OneRunAudit",
    "RocCurve",
    "many_run_audit",
    "membership_inference",
    "one_run_audit",
    "one_run_epsilon",
    "one_run_p_value",
    "per_example_losses",
    "update_scores",
]
