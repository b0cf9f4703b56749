"""Centred gradients for the release space of any algorithm."""

from __future__ import annotations

import numpy as np

from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.release.centred import CentredSpace
from tf_lowrank_dp.release.space import ReleaseSpace

CENTRES = "centre_"
"""Name of the centres in the state, before the position of the kernel."""


def centred_space(space: ReleaseSpace, context: ReleaseContext) -> CentredSpace:
    """The space of centred gradients, whose centres are kept in the context's state.

    Raises:
        ValueError: no kernel can be centred.
    """
    kernels = {i: p for i, p in enumerate(context.parameters) if p.bias is not None}
    if not kernels:
        raise ValueError(
            "Expected a layer whose kernel and bias are both trained, with centering=True. "
            f"Received: none, among {[p.path for p in context.parameters]}. Leave centering out."
        )
    context.state.keep_first(CENTRES, kernels, lambda kernel: np.zeros(kernel.centre_shape))
    centres = {index: context.state[f"{CENTRES}{index}"] for index in kernels}
    return CentredSpace(space, context.parameters, centres, context.step)
