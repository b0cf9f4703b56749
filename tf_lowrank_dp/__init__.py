"""Differentially private training for Keras 3 on TensorFlow.

>>> import tf_lowrank_dp as tfdp

Public is what stands in `__all__`, here and in the modules that are listed here:
`tfdp.algorithms`, `tfdp.auditing`, `tfdp.diagnostics`, `tfdp.layers`, and `tfdp.extend` for layers
and algorithms of your own.  Everything else may change without notice.
"""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "Expected Keras with the TensorFlow backend. Received: the "
        f"'{keras.backend.backend()}' backend. Set the environment variable "
        "KERAS_BACKEND=tensorflow before keras is imported."
    )

from tf_lowrank_dp import algorithms, auditing, diagnostics, extend, layers
from tf_lowrank_dp.accounting import calibrate_noise_multiplier, dp_sgd_statement
from tf_lowrank_dp.diagnostics import check_gradients, explain, plot_privacy
from tf_lowrank_dp.errors import (
    NotPrivateError,
    PrivacyBudgetExceededError,
    UnsupportedModelError,
    WorkerLostError,
)
from tf_lowrank_dp.mechanism.private_statistics import private_histogram, private_mean
from tf_lowrank_dp.optimizers import (
    AutomaticClip,
    DPPowerSGDOptimizer,
    DPSGDOptimizer,
    GEPOptimizer,
    LSGOptimizer,
    QuantileClip,
    RGPOptimizer,
    SparseDPSGDOptimizer,
)
from tf_lowrank_dp.sampling import PoissonSampler, Records
from tf_lowrank_dp.training import (
    PrivacyBudget,
    PrivateSearch,
    PrivateTrainer,
    WeightStandardization,
    make_private,
    make_standard,
    post_processing,
    privacy_report,
    privacy_spent,
    privacy_statement,
    record_release,
    replace_batch_normalization,
)
from tf_lowrank_dp.workers import join_workers

__version__ = "0.1.0"

__all__ = [
    "AutomaticClip",
    "DPPowerSGDOptimizer",
    "DPSGDOptimizer",
    "GEPOptimizer",
    "LSGOptimizer",
    "NotPrivateError",
    "PoissonSampler",
    "PrivacyBudget",
    "PrivacyBudgetExceededError",
    "PrivateSearch",
    "PrivateTrainer",
    "QuantileClip",
    "RGPOptimizer",
    "Records",
    "SparseDPSGDOptimizer",
    "UnsupportedModelError",
    "WeightStandardization",
    "WorkerLostError",
    "algorithms",
    "auditing",
    "calibrate_noise_multiplier",
    "check_gradients",
    "diagnostics",
    "dp_sgd_statement",
    "explain",
    "extend",
    "join_workers",
    "layers",
    "make_private",
    "make_standard",
    "plot_privacy",
    "post_processing",
    "privacy_report",
    "privacy_spent",
    "privacy_statement",
    "private_histogram",
    "private_mean",
    "record_release",
    "replace_batch_normalization",
]
