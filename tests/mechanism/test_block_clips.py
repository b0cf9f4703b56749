"""Blocks with clips of their own are one Gaussian release of the effective multiplier."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator

SIZE = 200_000


@pytest.mark.parametrize("clips", [(5.0, 2.0), (0.1, 30.0), (1.0, 2.0, 3.0)])
def test_each_block_gets_the_multiplier_times_the_root_of_their_number_times_its_clip(clips):
    mechanism = GaussianMechanism(math.hypot(*clips), 1.5, len(clips), clips)
    sums = [[tf.zeros([SIZE])] for _ in clips]
    released = mechanism.release(sums, NoiseGenerator(seed=2))
    for [block], clip in zip(released, clips, strict=True):
        deviation = 1.5 * math.sqrt(len(clips)) * clip
        assert abs(block.numpy().std() / deviation - 1) < 4 * np.sqrt(0.5 / SIZE)


@pytest.mark.parametrize("clips", [(5.0, 2.0), (0.1, 30.0), (1.0, 2.0, 3.0), (4.0,), (2.0, 2.0)])
def test_in_units_of_the_noise_a_record_moves_the_release_by_one_over_the_multiplier(clips):
    mechanism = GaussianMechanism(math.hypot(*clips), 0.7, len(clips), clips)
    shift = math.hypot(*(c / d for c, d in zip(clips, mechanism.deviations, strict=True)))
    assert shift == pytest.approx(1 / 0.7, rel=1e-12)
    assert mechanism.event.noise_multiplier == 0.7


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7])
def test_equal_clips_have_one_deviation_the_multiplier_times_the_joint_clip(num_blocks):
    default = GaussianMechanism(1.3, 1.1, num_blocks)
    given = GaussianMechanism(1.3, 1.1, num_blocks, (1.3 / math.sqrt(num_blocks),) * num_blocks)
    assert default.deviations == given.deviations == (1.1 * 1.3,) * num_blocks
    assert default == given


SHARES = [(0.96, 0.04), (0.48, 0.48, 0.04), (0.5, 0.5), (0.1, 0.9)]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 7.0])
def test_blocks_with_shares_of_their_own_cost_one_gaussian_of_the_multiplier(shares, multiplier):
    """`sum 1 / z_j^2 = 1 / z^2`, from the noise that is added; Renyi divergences agree."""
    clips = (0.7, 3.0, 0.02)[: len(shares)]
    mechanism = GaussianMechanism(math.hypot(*clips), multiplier, len(clips), clips, shares)
    sums = [[tf.zeros([SIZE])] for _ in clips]
    released = mechanism.release(sums, NoiseGenerator(seed=4))
    found = [block.numpy().std() / clip for [block], clip in zip(released, clips, strict=True)]
    for z, share in zip(found, shares, strict=True):
        assert z**-2 * multiplier**2 == pytest.approx(share, rel=8 * np.sqrt(0.5 / SIZE))
    blocks = [
        dp_accounting.GaussianDpEvent(d / c)
        for d, c in zip(mechanism.deviations, clips, strict=True)
    ]
    epsilons = []
    for event in (dp_accounting.ComposedDpEvent(blocks), mechanism.event):
        accountant = dp_accounting.rdp.RdpAccountant()
        epsilons.append(accountant.compose(event, 10).get_epsilon(1e-5))
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-9)


@pytest.mark.parametrize("shares", [(0.96, 0.05), (0.5, 0.4), (1.0, 0.0), (1.5, -0.5), (1.0,)])
def test_shares_that_do_not_add_up_to_one_are_refused(shares):
    with pytest.raises(ValueError, match="(?s)Expected.*shares.*Received"):
        GaussianMechanism(5.0, 1.0, 2, (4.0, 3.0), shares)


def test_clips_that_do_not_fit_the_joint_clip_are_refused():
    for clips in ((1.0, 1.0), (5.0,)):
        with pytest.raises(ValueError, match="(?s)Expected.*block_clips.*Received"):
            GaussianMechanism(5.0, 1.0, 2, clips)


@pytest.mark.parametrize(
    ("rate", "steps", "multiplier"), [(1000 / 60_000, 600, 1.0), (0.05, 1000, 2.0)]
)
def test_two_parts_of_one_batch_cost_more_than_two_subsampled_releases(rate, steps, multiplier):
    """The published code composes two releases of `sqrt(2) z`, each amplified by sampling."""

    def epsilon(*multipliers):
        ledger = PrivacyLedger()
        for z in multipliers:
            sampling = Sampling.poisson(batch_size=8, sampling_rate=rate)
            ledger.append(LedgerEntry(sampling, z, steps))
        return ledger.epsilon(1e-5, accountant="rdp")

    true, published = epsilon(multiplier), epsilon(*[math.sqrt(2) * multiplier] * 2)
    assert published < true < 2.0 * published
