"""Checks of the arguments of `fit` that make units of several rows."""

from __future__ import annotations

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling import PoissonSampler, Records, UserSampler
from tf_lowrank_dp.training.data import is_batched
from tf_lowrank_dp.training.preprocessed import is_task
from tf_lowrank_dp.training.state import state_of


def check_units(
    model: keras.Model,
    x: Nested,
    *,
    unit_ids: Nested,
    rows_per_unit: int | None,
    multiplicity: int,
    validation_split: float,
    gradient_method: str,
) -> None:
    """Refuses what `fit` cannot make units of.

    Raises:
        ValueError: an argument is out of its range, misses another one, or does not go with it.
    """
    of_users = unit_ids is not None or isinstance(x, UserSampler)
    several = _validate.integer_at_least(1, multiplicity=multiplicity) > 1 or of_users
    if several and not state_of(model).workers.alone:
        raise ValueError(
            "Expected one process for units of several rows. Received: several workers, each of "
            "which draws from rows of its own. Train on one, or by example."
        )
    if several and gradient_method == "reweight":
        raise ValueError(
            "Expected another gradient_method for units of several rows. Received: 'reweight', "
            "whose second backward pass weighs rows. Leave it out."
        )
    if unit_ids is None and rows_per_unit is None:
        return
    if unit_ids is None or rows_per_unit is None:
        raise ValueError(
            "Expected unit_ids and rows_per_unit together. Received: unit_ids of type "
            f"{type(unit_ids).__name__} and rows_per_unit={rows_per_unit}. Pass the user of each "
            "row, and how many rows of a user a step may take."
        )
    if isinstance(x, PoissonSampler | Records) or is_batched(x):
        raise ValueError(
            "Expected arrays with unit_ids, of which fit draws users. Received: "
            f"{type(x).__name__}. Pass arrays, or leave unit_ids out for privacy of examples."
        )
    if is_task(model):
        raise ValueError(
            f"Expected a model of tensors with unit_ids. Received: '{model.name}', which "
            "preprocesses its data itself. Apply its preprocessor before fit, and train its "
            "backbone with a head."
        )
    if validation_split:
        raise ValueError(
            "Expected validation_data with unit_ids. Received: validation_split, which could "
            "leave rows of one user on both sides. Split by users and pass validation_data."
        )
