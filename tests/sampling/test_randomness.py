"""Tests of the sampler's keys: fresh, secret, never copied."""

import copy
import itertools
import os
import pickle

import numpy as np
import pytest

from tf_lowrank_dp.sampling import PoissonSampler, randomness

X = np.arange(300)


def drawn(batches, steps=3):
    """Returns the examples of the first few batches: two samplers agree with chance 2**-800."""
    batches = itertools.islice(iter(batches), steps)
    return [batch["x"][batch["presence"] == 1].tolist() for batch in batches]


def sampler(**arguments):
    return PoissonSampler(X, batch_size=150, **arguments)


def test_samplers_without_seed_differ():
    assert drawn(sampler()) != drawn(sampler())


def test_samplers_with_the_same_seed_agree():
    assert sampler(seed=1).seeded
    assert drawn(sampler(seed=1)) == drawn(sampler(seed=1))
    assert drawn(sampler(seed=1)) != drawn(sampler(seed=2))


@pytest.mark.parametrize("seed", [None, 4])
def test_draws_are_not_repeated_by_iterating_again(seed):
    one = sampler(seed=seed)
    assert drawn(one) != drawn(one)
    dataset = sampler(seed=seed, steps=2).as_dataset()
    first, second = (drawn(dataset.as_numpy_iterator()) for _ in range(2))
    assert first != second


def test_later_iterations_of_a_seeded_sampler_are_reproducible():
    one, two = sampler(seed=9), sampler(seed=9)
    assert [drawn(one), drawn(one, 1)] == [drawn(two), drawn(two, 1)]


@pytest.mark.parametrize("seed", [None, 123456789])
def test_copies_have_keys_of_their_own(seed):
    original = sampler(seed=seed)
    for duplicate in (
        copy.copy(original),
        copy.deepcopy(original),
        pickle.loads(pickle.dumps(original)),
    ):
        assert not duplicate.seeded
        assert drawn(duplicate) != drawn(original)
        assert drawn(duplicate) != drawn(duplicate)
        assert duplicate.batch_size == original.batch_size


def test_the_key_is_in_no_repr_pickle_or_attribute(monkeypatch):
    key = int.from_bytes(b"0123456789abcdef", "little")
    monkeypatch.setattr(randomness.secrets, "randbits", lambda bits: key % 2**bits)
    one = sampler()
    list(itertools.islice(one, 2))
    for text in (repr(one), str(one), str(vars(one))):
        assert str(key) not in text
        assert hex(key)[2:] not in text
    stored = pickle.dumps(one)
    assert b"01234567" not in stored
    assert key.to_bytes(16, "big") not in stored
    assert not any(isinstance(v, np.random.Generator) for v in vars(one).values())
    with pytest.raises(TypeError):
        pickle.dumps(iter(one))


def test_an_explicit_seed_is_in_no_repr_or_pickle():
    one = sampler(seed=987654321123)
    assert "987654321123" not in repr(one)
    assert (987654321123).to_bytes(5, "little") not in pickle.dumps(one)


def test_the_whole_key_comes_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(
        randomness.secrets, "randbits", lambda bits: asked.append(bits) or 2**bits - 1
    )
    generator = randomness.secret_generator()
    assert asked == [128]
    assert generator.bit_generator.state["state"]["key"].tolist() == [2**64 - 1] * 2


@pytest.mark.parametrize("started", [False, True])
def test_a_forked_process_draws_from_a_new_key(monkeypatch, started):
    """An iterator made before a fork is used in the child (simulated by a change of process)."""
    batches = iter(sampler())
    monkeypatch.setattr(randomness.secrets, "randbits", lambda bits: 77)
    if started:
        next(batches)
    monkeypatch.setattr(randomness, "process_token", lambda: (0, 0))
    child = drawn(batches, 2)
    assert child == drawn(sampler(), 2)  # both are keyed afresh, here with 77


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_real_fork_changes_the_process_token_and_the_draws():
    batches = iter(sampler())
    token = randomness.process_token()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # only numpy and pipes here: TensorFlow's threads are not in the child
        try:
            message = repr((randomness._forks, drawn(batches))).encode()
            os.write(write, message)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        received = pipe.read()
    os.waitpid(child, 0)
    assert received.startswith(f"({token[1] + 1}, ")
    assert received != repr((token[1] + 1, drawn(batches)))


def test_streams_of_a_seed_differ():
    first, second = (randomness.seeded_generator(3, stream).random(8) for stream in (0, 1))
    assert not np.any(first == second)
