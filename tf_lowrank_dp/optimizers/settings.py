"""The privacy arguments that all private optimizers have."""

from __future__ import annotations

from typing import Any

from tf_lowrank_dp import _validate
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.optimizers.checks import check_scales
from tf_lowrank_dp.optimizers.clips import checked_clip_norm

SETTINGS = """
l2_norm_clip epsilon delta noise_multiplier planned_steps clipping centering gradient_scale
gradient_method accountant
""".split()


def checked(**settings: Any) -> dict[str, Any]:
    """The arguments with the types that the mechanism and the ledger take.

    Args:
        **settings: by their names in `SETTINGS`.

    Raises:
        ValueError: one is out of its range, or they contradict each other.
    """
    budget = ("epsilon", "delta", "noise_multiplier")
    numbers = _validate.epsilon_delta_or_noise_multiplier(
        **{name: settings[name] for name in budget}
    )
    found = {**settings, **dict(zip(budget, numbers, strict=True))}
    found["l2_norm_clip"] = checked_clip_norm(settings["l2_norm_clip"], found["noise_multiplier"])
    found["gradient_scale"] = dict(settings["gradient_scale"] or {})
    found["centering"] = bool(settings["centering"])
    check_scales(found["gradient_scale"])
    found["gradient_scale"] = {part: float(s) for part, s in found["gradient_scale"].items()}
    _validate.one_of(
        ("flat", "per_layer"),
        clipping=settings["clipping"],
        remedy="Automatic clipping is l2_norm_clip=tfdp.AutomaticClip(), with either.",
    )
    _validate.one_of(tuple(METHODS), gradient_method=settings["gradient_method"])
    _validate.one_of(("pld", "rdp"), accountant=settings["accountant"])
    if settings["planned_steps"] is not None:
        steps = _validate.integer_at_least(1, planned_steps=settings["planned_steps"])
        found["planned_steps"] = steps
    return found
