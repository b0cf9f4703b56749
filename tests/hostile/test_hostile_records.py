"""Whatever a record holds, it moves what is released by at most the declared sensitivity.

A case is one hostile record of one data set, added to nothing and removed from the others, in one
configuration of model, optimizer, clipping, dtype policy, microbatches and gradient method.
`pytest --hypothesis-profile=long tests/hostile` runs ten times as many.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.hostile.configurations import CONFIGURATIONS
from tests.hostile.harness import Harness
from tests.hostile.records import RECORDS, kinds, make_batch

SLACK = 1.0 + 1e-5
# Rounding of float32 sums of up to RECORDS clipped records, over the clip.
ROUNDING = 1e-5
DATA_SETS = settings().max_examples // 10
LONG = DATA_SETS > 10


def assert_within_sensitivity(harness, released):
    norms = [np.linalg.norm(block) for block in released]
    for norm, clip in zip(norms, harness.mechanism.block_clips, strict=True):
        assert norm <= clip * SLACK
    assert np.hypot.reduce(norms) <= harness.mechanism.l2_norm_clip * SLACK


def distance(first, second):
    differences = [a - b for a, b in zip(first, second, strict=True)]
    return np.linalg.norm(np.concatenate(differences))


def check(harness, batch):
    """All neighbours of a data set: every record alone, and every record left out."""
    empty, subspace, _ = harness.release(batch, np.zeros(RECORDS))
    assert all(not block.any() for block in empty)
    inside, rounding = harness.inside(), ROUNDING * harness.mechanism.l2_norm_clip
    alone = []

    def release(batch, presence):
        released, found, _ = harness.release(batch, presence)
        assert harness.inside() == inside
        for tensor, expected in zip(found, subspace, strict=True):
            np.testing.assert_array_equal(tensor, expected)
        return released

    for one in np.eye(RECORDS):
        alone.append(release(batch, one))
        assert_within_sensitivity(harness, alone[-1])
    together = [np.sum(blocks, axis=0) for blocks in zip(*alone, strict=True)]
    everyone = release(batch, np.ones(RECORDS))
    assert distance(everyone, together) <= rounding
    for removed in range(RECORDS):
        presence = np.arange(RECORDS) != removed
        blanked = {key: values.copy() for key, values in batch.items()}
        for values in blanked.values():
            values[removed] = 0
        neighbour = release(blanked, presence)
        others = [block - own for block, own in zip(together, alone[removed], strict=True)]
        assert distance(neighbour, others) <= rounding


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_hostile_record_moves_the_release_by_at_most_the_sensitivity_and_nothing_else(name):
    harness = Harness(CONFIGURATIONS[name])
    data_sets = set()

    # Hypothesis repeats some: twice as many, until there are enough different ones.
    @settings(
        max_examples=2 * DATA_SETS, deadline=None, derandomize=not LONG, phases=[Phase.generate]
    )
    @given(chosen=kinds(harness.kind), seed=st.integers(0, 2**32 - 1))
    def check_data_sets(chosen, seed):
        if len(data_sets) >= DATA_SETS or (repr(chosen), seed) in data_sets:
            return
        shapes = harness.x_shape, harness.y_shape
        batch = make_batch(harness.kind, chosen, seed, *shapes, harness.directions)
        check(harness, batch)
        data_sets.add((repr(chosen), seed))

    check_data_sets()
    assert len(data_sets) >= DATA_SETS


def test_the_suite_has_two_thousand_cases():
    """Each configuration asserts that it has seen as many data sets."""
    assert len(CONFIGURATIONS) * DATA_SETS * RECORDS >= 2000 * (10 if LONG else 1)
