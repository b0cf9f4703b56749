"""What a step sends is what its release space says, and nothing where one process trains."""

import keras
import pytest
import tensorflow as tf

from tests.workers import cases
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.start_run import start_run
from tf_lowrank_dp.workers.alone import ALONE
from tf_lowrank_dp.workers.connected import ConnectedWorkers


def messages(name, workers):
    """Sizes of the messages of a traced step by operation, and its release space."""
    model = cases.compiled(ALONE, cases.OPTIMIZERS[name]())
    run = start_run(
        model,
        Sampling.poisson(96, 12),
        1,
        loss=CompiledLoss(model, 12.0),
        target_spec=tf.TensorSpec([None], tf.int64),
    )
    object.__setattr__(run.engine, "workers", workers)
    x, y = cases.rows(12)
    batch = {"x": tf.constant(x), "y": tf.constant(y)}

    @tf.function(autograph=False)
    def step():
        return run.engine.private_gradients(run.loss, batch, tf.ones(12))

    found = {}
    for operation in step.get_concrete_function().graph.get_operations():
        if operation.type.startswith("Collective"):
            found.setdefault(operation.type, []).append(operation.outputs[0].shape.num_elements())
    return found, run.engine.space


def numbers_of(space):
    return sum(keras.ops.prod(shape).numpy() for block in space.shapes for shape in block)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("name", ["dpsgd", "rgp", "lsg", "gep with noise", "centred"])
def test_the_released_blocks_are_summed_and_two_numbers_to_guard_them(name, index):
    found, space = messages(name, ConnectedWorkers(None, 2, index))
    assert found["CollectiveReduceV2"] == [numbers_of(space) + 2]


@pytest.mark.parametrize("index, kind", [(0, "Send"), (1, "Recv")])
def test_carriers_come_from_the_chief(index, kind):
    found, space = messages("rgp", ConnectedWorkers(None, 2, index))
    carriers = 2 * (8 + 6) + 2 * (6 + 3)
    assert numbers_of(space) == carriers + 6 + 3
    assert found == {
        "CollectiveReduceV2": [numbers_of(space) + 2],
        f"CollectiveBcast{kind}V2": [carriers],
    }


@pytest.mark.parametrize("name", ["dpsgd", "rgp", "gep with noise"])
def test_one_process_sends_nothing(name):
    assert messages(name, ALONE)[0] == {}
