"""Mechanisms with a bug that leaves the reported epsilon as it is."""

from unittest import mock

from tf_lowrank_dp.mechanism import gaussian
from tf_lowrank_dp.mechanism.noise import NoiseGenerator

DEVIATIONS = gaussian.GaussianMechanism.deviations.fget
NORMAL = NoiseGenerator.normal


def no_clipping(batch_size):
    """Gradients are summed as they are."""
    return mock.patch.object(gaussian, "clip_factors", lambda block, presence, *_: presence)


def noise_divided_by_batch_size(batch_size):
    """The deviation is that of the mean, but it is added to the sum."""

    def deviations(mechanism):
        return tuple(deviation / batch_size for deviation in DEVIATIONS(mechanism))

    return mock.patch.object(gaussian.GaussianMechanism, "deviations", property(deviations))


def reused_noise(batch_size):
    """The counter of the generator stands still: all steps draw the same numbers."""

    def normal(generator, shapes):
        generator._draws.assign([0, 0, 0])
        return NORMAL(generator, shapes)

    return mock.patch.object(NoiseGenerator, "normal", normal)


BROKEN = {
    "no clipping": no_clipping,
    "noise divided by the batch size": noise_divided_by_batch_size,
    "reused noise": reused_noise,
}
"""Functions of the expected batch size that return a patch, by name."""

SCORES = {
    "no clipping": "total",
    "noise divided by the batch size": "total",
    "reused noise": "spread",
}
"""The score of `CanaryRun` that shows each bug."""
