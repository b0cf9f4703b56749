"""Accounting: what was released, what it cost, and what is still affordable.

It needs no TensorFlow. A training run is planned and recorded like this:

>>> sampling = Sampling.poisson(num_examples=60_000, batch_size=600)
>>> z = calibrate_noise_multiplier(2.0, 1e-5, 600, 60_000, steps=100, accountant="rdp")
>>> ledger = PrivacyLedger()
>>> run = ledger.append(LedgerEntry(sampling, noise_multiplier=z, l2_norm_clip=1.0))
>>> ledger.update_steps(run, 100)
>>> 1.99 < ledger.epsilon(1e-5, accountant="rdp") <= 2.0
True
"""

from tf_lowrank_dp.accounting.calibration import (
    MAX_STEPS,
    calibrate_noise_multiplier,
    max_steps,
)
from tf_lowrank_dp.accounting.composition import ACCOUNTANTS
from tf_lowrank_dp.accounting.curve import epsilon_curve
from tf_lowrank_dp.accounting.ledger import PrivacyLedger
from tf_lowrank_dp.accounting.ledger_entry import LedgerEntry
from tf_lowrank_dp.accounting.ledger_file import LedgerFile, open_ledger_file
from tf_lowrank_dp.accounting.planned import dp_sgd_statement
from tf_lowrank_dp.accounting.release_entry import ReleaseEntry
from tf_lowrank_dp.accounting.report import PrivacyReport, report_of
from tf_lowrank_dp.accounting.sampling import Sampling, steps_per_epoch
from tf_lowrank_dp.accounting.statement import statement

__all__ = [
    "ACCOUNTANTS",
    "MAX_STEPS",
    "LedgerEntry",
    "LedgerFile",
    "PrivacyLedger",
    "PrivacyReport",
    "ReleaseEntry",
    "Sampling",
    "calibrate_noise_multiplier",
    "dp_sgd_statement",
    "epsilon_curve",
    "max_steps",
    "open_ledger_file",
    "report_of",
    "statement",
    "steps_per_epoch",
]
