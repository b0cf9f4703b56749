"""DP-SGD, with any inner optimizer (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.release.identity import IdentitySpace


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class DPSGDOptimizer(DPOptimizer):
    """Differentially private training with clipped, noised gradients and any Keras optimizer.

    Each step draws a batch, clips the gradient of each example's loss to `l2_norm_clip`, adds up,
    adds Gaussian noise of standard deviation `noise_multiplier * l2_norm_clip`, divides by the
    expected batch size and hands the result to the inner optimizer (Abadi et al. 2016,
    Algorithm 1).

    Formal guarantee: with Poisson sampling of rate q, T steps are (epsilon, delta)-differentially
    private for adding or removing one example, with epsilon by composing T Poisson-sampled
    Gaussians of multiplier `noise_multiplier`.

    Args:
        optimizer: the inner optimizer, see `DPOptimizer` for this and the other arguments.
        clipping: "flat" clips the joint norm over all variables; "per_layer" clips each layer's
            part at `l2_norm_clip / sqrt(layers)`, so that the root of the sum of squares is
            `l2_norm_clip` again.
        **kwargs: see `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, epsilon=3.0, delta=1e-5)
    >>> optimizer.l2_norm_clip
    1.0
    """

    mechanism_name = "DP-SGD"

    def __init__(self, optimizer="sgd", *, clipping: str = "flat", **kwargs):
        _validate.one_of(("flat", "per_layer"), clipping=clipping)
        super().__init__(optimizer, **kwargs)
        self.clipping = clipping

    def release_space(self, variables: Sequence) -> IdentitySpace:
        if self.clipping == "flat":
            return IdentitySpace(variables, [range(len(variables))])
        layers: dict[str, list[int]] = {}
        for index, variable in enumerate(variables):
            layers.setdefault(variable.path.rpartition("/")[0], []).append(index)
        return IdentitySpace(variables, list(layers.values()))

    def get_config(self) -> dict:
        return {**super().get_config(), "clipping": self.clipping}
