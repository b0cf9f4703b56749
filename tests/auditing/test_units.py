"""The one-run audit of users with several rows: a canary is a user, all of whose rows say the same.

Canary `i` has `ROWS` rows with row `i` of an embedding table, whose gradients are far longer than
the clip norm and point in one direction.  The attacker looks how far the weights went along it.
"""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.auditing.canary_run import WIDTH, directions, inner_product_loss
from tf_lowrank_dp.auditing import Canaries, one_run_audit, update_scores

DELTA, CONFIDENCE, CANARIES, ROWS, EPOCHS, RATE = 1e-6, 0.9999, 600, 16, 4, 0.01
OPTIMIZERS = {
    "DP-SGD": (tfdp.DPSGDOptimizer, {}),
    "RGP": (tfdp.RGPOptimizer, {"rank": 4, "include": ["table"]}),
    "LSG": (tfdp.LSGOptimizer, {"rank": 4, "include": ["table"], "sparsity": 0.25}),
}


def audit(name, noise_multiplier, by_users=True):
    """The bound of the audit, that of the library, and how well canaries are told apart."""
    make, own = OPTIMIZERS[name]
    canaries = Canaries.draw(np.arange(CANARIES, dtype=np.int32), directions(CANARIES, seed=0))
    table = keras.layers.Embedding(CANARIES, WIDTH, name="table")
    model = tfdp.make_private(keras.Sequential([keras.Input((), dtype="int32"), table]))
    privacy = {"l2_norm_clip": 1.0, "noise_multiplier": noise_multiplier, "delta": DELTA}
    optimizer = make(keras.optimizers.SGD(RATE), **own, **privacy)
    model.compile(optimizer, loss=inner_product_loss, run_eagerly=True, jit_compile=False)
    before = np.array(table.embeddings)
    x, y = canaries.insert(canaries.x[:0], canaries.y[:0])
    users = {"unit_ids": np.repeat(x, ROWS), "rows_per_unit": ROWS} if by_users else {}
    rows, targets = np.repeat(x, ROWS), np.repeat(y, ROWS, axis=0)
    batch_size = -(-(len(x) if by_users else len(rows)) // 2)
    model.fit(rows, targets, batch_size=batch_size, epochs=EPOCHS, verbose=0, **users)
    update = np.array(table.embeddings) - before
    scores = update_scores(model, [update], canaries.x, canaries.y)
    found = one_run_audit(scores, canaries.included, delta=DELTA, confidence=CONFIDENCE)
    return found, tfdp.privacy_spent(model, DELTA)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_audit_of_users_exceeds_the_reported_epsilon(name):
    found, reported = audit(name, noise_multiplier=1.2)
    assert found.epsilon < reported
    assert found.roc.auc > 0.6  # the attack sees something


def test_the_epsilon_of_single_rows_is_exceeded_where_a_canary_is_a_user():
    found, reported = audit("DP-SGD", noise_multiplier=8.0, by_users=False)
    assert found.epsilon > reported
