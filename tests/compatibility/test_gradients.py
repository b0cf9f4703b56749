"""`check_gradients` raises no false alarm on other people's models, in low precision neither."""

import keras
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.compatibility.case import make_private
from tests.compatibility.public_examples import EXAMPLES

ROWS = 6
TRAINED = [example for example in EXAMPLES if not example.cause]

# In bfloat16 these fail without this library as well: operations or own code for float32 only.
OF_FLOAT32 = ("compact_transformer", "heart_disease", "miniature_gpt")


@pytest.fixture(params=["float32", "mixed_bfloat16"])
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def first_rows(fit):
    """A few rows of what `fit` gets, as arguments of `check_gradients`."""
    x = fit["x"]
    if isinstance(x, keras.utils.PyDataset):
        batch = x[0]
    elif hasattr(x, "__next__") or isinstance(x, tf.data.Dataset):
        batch = next(iter(x))
    else:
        batch = (x, fit.get("y"))
    batch = batch if isinstance(batch, tuple) else (batch,)
    given = keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[:ROWS], batch)
    return dict(zip(("x", "y", "sample_weight"), given, strict=False))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("example", TRAINED, ids=lambda example: example.name)
def test_no_false_alarm(example, policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # logs
    if policy != "float32" and example.name in OF_FLOAT32:
        with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
            run = example.build()
            run.model.compile(run.optimizer, jit_compile=False, **run.compile)
            run.model.fit(**{**run.fit, "verbose": 0})
        return
    run = example.build()
    make_private(run)
    found = tfdp.check_gradients(run.model, **first_rows(run.fit))
    assert found < (1e-4 if policy == "float32" else 0.2)
