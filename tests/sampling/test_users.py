"""Users are drawn as the ledger states, each with at most so many rows, all as likely."""

import numpy as np
import pytest
import scipy.stats

from tf_lowrank_dp.sampling import UserSampler

IDS = np.array([4, -1, 4, 9, 4, 9, 4, 2])  # 4: four rows, 9: two, -1 and 2: one
X = np.arange(8.0)


def sampler(rows_per_unit=2, batch_size=2, **arguments):
    return UserSampler(
        X, unit_ids=IDS, rows_per_unit=rows_per_unit, batch_size=batch_size, **arguments
    )


def drawn(batch):
    """For each unit that is present the rows that count, and their weights."""
    for x, weights, presence in zip(
        batch["x"], batch["row_weight"], batch["presence"], strict=True
    ):
        if presence:
            yield x[weights > 0].astype(int), weights[weights > 0]


def test_each_user_is_in_a_batch_at_most_once_with_rows_of_its_own():
    for batch in sampler(steps=300):
        users = []
        for rows, weights in drawn(batch):
            [user] = set(IDS[rows])
            users.append(user)
            assert len(set(rows)) == len(rows) == min(2, np.sum(IDS == user))
            np.testing.assert_allclose(weights, 1 / len(rows))
        assert len(set(users)) == len(users)


def test_places_without_a_row_hold_one_of_the_same_user():
    for batch in sampler(rows_per_unit=3, steps=50):
        for x, presence in zip(batch["x"], batch["presence"], strict=True):
            assert not presence or len(set(IDS[x.astype(int)])) == 1


def test_users_are_drawn_at_the_rate_that_is_stated_and_their_rows_alike():
    steps = 4000
    users, rows = np.zeros(11), np.zeros(8)  # user -1 is the last
    for batch in sampler(steps=steps):
        for found, _ in drawn(batch):
            users[IDS[found[0]]] += 1
            rows[found] += 1
    stated = sampler().sampling
    assert stated.unit == "user" and stated.num_examples == 4 and stated.sampling_rate == 0.5
    for user in (4, -1, 9, 2):
        assert scipy.stats.binomtest(int(users[user]), steps, 0.5).pvalue > 1e-5
    assert scipy.stats.chisquare(rows[IDS == 4]).pvalue > 1e-5


def test_a_seed_repeats_the_draws_and_nothing_else_does():
    def draws(seed):
        return [batch["x"].tolist() for batch in sampler(steps=6, seed=seed)]

    assert draws(3) == draws(3) != draws(4)
    assert draws(None) != draws(None)


@pytest.mark.parametrize(
    "ids", [IDS.astype(float), IDS[:-1], IDS[:, None], [str(i) for i in IDS], IDS > 3]
)
def test_ids_that_number_no_users_are_refused(ids):
    with pytest.raises(ValueError, match="(?s)Expected.*unit_ids.*Received"):
        UserSampler(X, unit_ids=ids, rows_per_unit=2, batch_size=2)


@pytest.mark.parametrize("rows_per_unit", [0, 1.5, None])
def test_rows_per_unit_is_a_number_of_rows(rows_per_unit):
    with pytest.raises(ValueError, match="(?s)Expected.*rows_per_unit.*Received"):
        sampler(rows_per_unit)


def test_masked_ids_are_refused():
    ids = np.ma.masked_equal([1, -1, 2, -1], -1)
    with pytest.raises(ValueError, match="(?s)Expected the user of each row.*a masked array"):
        UserSampler(np.zeros(4), unit_ids=ids, rows_per_unit=1, batch_size=1)
