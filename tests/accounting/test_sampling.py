"""How batches were drawn, and the event that follows from it."""

import dp_accounting
import numpy as np
import pytest

from tf_lowrank_dp.accounting import Sampling, steps_per_epoch

GAUSSIAN = dp_accounting.GaussianDpEvent(1.1)


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "steps"),
    [(10, 5, 2), (10, 4, 3), (1, 1, 1), (10**17 + 1, 1, 10**17 + 1)],
)
def test_steps_per_epoch_is_the_quotient_rounded_up(num_examples, batch_size, steps):
    assert steps_per_epoch(num_examples, batch_size) == steps


def test_poisson_rate_is_batch_size_over_num_examples_unless_given():
    assert Sampling.poisson(num_examples=1000, batch_size=10).sampling_rate == 0.01
    assert Sampling.poisson(batch_size=10, sampling_rate=0.02).sampling_rate == 0.02


def test_poisson_event_is_a_composition_of_poisson_sampled_gaussians():
    event = Sampling.poisson(num_examples=1000, batch_size=10).event(GAUSSIAN, 7)
    sampled = dp_accounting.PoissonSampledDpEvent(0.01, GAUSSIAN)
    assert event == dp_accounting.SelfComposedDpEvent(sampled, 7)


def test_poisson_event_at_rate_one_is_a_plain_gaussian():
    event = Sampling.poisson(num_examples=10, batch_size=10).event(GAUSSIAN, 7)
    assert event == dp_accounting.SelfComposedDpEvent(GAUSSIAN, 7)


@pytest.mark.parametrize(("steps", "passes"), [(1, 1), (59, 1), (60, 1), (61, 2), (121, 3)])
def test_shuffle_event_counts_a_pass_that_was_begun_as_a_whole_pass(steps, passes):
    event = Sampling.shuffle(batch_size=10, steps_per_pass=60).event(GAUSSIAN, steps)
    assert event == dp_accounting.SelfComposedDpEvent(GAUSSIAN, passes)


def test_no_steps_are_no_event():
    event = Sampling.shuffle(batch_size=10, steps_per_pass=60).event(GAUSSIAN, 0)
    assert event == dp_accounting.NoOpDpEvent()


def test_neighboring_relation_is_add_or_remove_for_poisson_and_replace_for_shuffle():
    relation = dp_accounting.NeighboringRelation
    assert Sampling.poisson(10, 2).neighboring_relation is relation.ADD_OR_REMOVE_ONE
    assert Sampling.shuffle(2, 5).neighboring_relation is relation.REPLACE_ONE


def test_numpy_integers_become_python_integers():
    sampling = Sampling.poisson(num_examples=np.int64(10), batch_size=np.int32(2))
    assert type(sampling.num_examples) is int and type(sampling.batch_size) is int


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling.poisson(10, 11), "`batch_size` to be at most the number of examples, 10"),
        (lambda: Sampling.shuffle(11, 1, num_examples=10), "at most the number of examples, 10"),
        (lambda: steps_per_epoch(10, 11), "at most the number of examples, 10"),
        (lambda: Sampling.poisson(10), "batch_size=None"),
        (lambda: Sampling.poisson(10, 2.0), "batch_size=2.0"),
        (lambda: Sampling.poisson(10, True), "batch_size=True"),
        (lambda: Sampling.poisson(batch_size=2), "`sampling_rate` to be given"),
        (lambda: Sampling.poisson(1000, 2, sampling_rate=0.00101), "sampling_rate=0.00101"),
        (lambda: Sampling.poisson(1000, 2, sampling_rate=0.00251), "sampling_rate=0.00251"),
        (lambda: Sampling.poisson(batch_size=2, sampling_rate=0.0), "above 0 and at most 1"),
        (lambda: Sampling.poisson(batch_size=2, sampling_rate=1.5), "above 0 and at most 1"),
        (lambda: Sampling.poisson(batch_size=2, sampling_rate=float("nan")), "sampling_rate=nan"),
        (lambda: Sampling.poisson(1000, 100, 0.001), "about batch_size / num_examples"),
        (lambda: Sampling.shuffle(2, 0), "steps_per_pass=0"),
        (lambda: Sampling.shuffle(2, 11, num_examples=10), "steps_per_pass=11"),
        (lambda: Sampling("random", 10, 2), "'poisson' or 'shuffle'"),
        (lambda: Sampling("shuffle", 10, 2, 0.2, 5), "None with shuffled passes"),
        (lambda: Sampling("poisson", 10, 2, 0.2, 5), "None with Poisson sampling"),
        (lambda: Sampling.poisson(10, 2).event(GAUSSIAN, -1), "steps=-1"),
    ],
)
def test_errors_say_expected_received_and_the_remedy(make, message):
    with pytest.raises(ValueError, match=r"Expected .* Received: .*=.*\. \w+") as raised:
        make()
    assert message in str(raised.value)
