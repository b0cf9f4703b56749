"""Private training of Keras models: conversion, `fit`, custom loops, callbacks and reports."""

from tf_lowrank_dp.training.callbacks import PrivacyBudget
from tf_lowrank_dp.training.make_private import make_private, make_standard
from tf_lowrank_dp.training.other_releases import record_release
from tf_lowrank_dp.training.post_processing import post_processing
from tf_lowrank_dp.training.private_search import PrivateSearch
from tf_lowrank_dp.training.replace_batch_normalization import replace_batch_normalization
from tf_lowrank_dp.training.report import (
    privacy_report,
    privacy_spent,
    privacy_statement,
)
from tf_lowrank_dp.training.trainer import PrivateTrainer
from tf_lowrank_dp.training.weight_standardization import WeightStandardization

__all__ = [
    "PrivacyBudget",
    "PrivateSearch",
    "PrivateTrainer",
    "WeightStandardization",
    "make_private",
    "make_standard",
    "post_processing",
    "privacy_report",
    "privacy_spent",
    "privacy_statement",
    "record_release",
    "replace_batch_normalization",
]
