"""What a step sends is what its release space says, and nothing where one process trains."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.workers import cases
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.algorithms.matrices import ranks_of
from tf_lowrank_dp.per_example.parameter import MatrixView, Parameter
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.low_rank import LowRankSpace
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
    return sum(math.prod(shape) for block in space.shapes for shape in block)


@pytest.mark.parametrize("name", ["dpsgd", "gep with noise", "centred"])
def test_the_released_blocks_are_summed_and_two_numbers_to_guard_them(name):
    found, space = messages(name, ConnectedWorkers(None, 2, 0))
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


class Counting(ConnectedWorkers):
    """The chief of two, whose other sends zeros; keeps the sizes of its messages."""

    sizes: list[int] = []

    def _reduced(self, flat, key):
        self.sizes.append(flat.shape[0])
        return tf.concat([flat[:-1], flat[-1:] + 1.0], 0)


FROZEN = {
    # Of 8 inputs and 6 outputs 4 and 3 are frozen, of 6 and 3 3 and 1; rank 2; biases are not.
    "lsg": ({"masks_from": "weights"}, 2 * (4 + 3) + 2 * (3 + 2) + 6 + 3),
    "sparse": ({}, 24 + 9 + 6 + 3),
    "centred and scaled": ({"masks_from": "weights"}, 2 * (4 + 3) + 2 * (3 + 2) + 6 + 3 + 8 + 6),
}


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_units_do_not_travel_and_the_lift_is_the_same(name):
    settings, expected = FROZEN[name]
    kind = {"sparse": tfdp.SparseDPSGDOptimizer}.get(name, tfdp.LSGOptimizer)
    if name == "centred and scaled":
        settings = {**settings, "centering": True, "gradient_scale": {"out": 0.5}}
    rank = {} if kind is tfdp.SparseDPSGDOptimizer else {"rank": 2}
    model = cases.compiled(ALONE, cases.of(kind, sparsity=0.5, **rank, **settings, **cases.BOTH)())
    space = start_run(model, Sampling.poisson(96, 12), 1).engine.space
    subspace = space.refresh()
    sums = [[tf.random.normal(shape) for shape in block] for block in space.shapes]
    workers = Counting(None, 2, 0)
    workers.sizes = []
    found = workers._added(sums, 1, space.needed(subspace))
    assert workers.sizes == [expected + 2]
    lifted, same = space.lift(sums, subspace), space.lift(found, subspace)
    for ours, theirs in zip(same, lifted, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["dpsgd", "rgp"])
def test_one_process_sends_nothing(name):
    assert messages(name, ALONE)[0] == {}


def bert_base(tables):
    """Its variables as an algorithm sees them; only shapes are looked at."""
    shapes = []
    for block in range(12):
        shapes += [(f"{block}/{name}/kernel", (768, 768)) for name in "qkvo"]
        shapes += [(f"{block}/in/kernel", (768, 3072)), (f"{block}/out/kernel", (3072, 768))]
        shapes += [(f"{block}/bias{i}", (768,)) for i in range(9)] + [(f"{block}/bias", (3072,))]
    shapes += [("pooler/kernel", (768, 768)), ("pooler/bias", (768,)), ("gamma", (768,))]
    shapes += [("beta", (768,))]
    if tables:
        shapes += [("tokens/table", (30522, 768)), ("positions/table", (512, 768))]
    found = []
    for path, shape in shapes:
        role = {"kernel": "kernel", "table": "embedding"}.get(path.rpartition("/")[2], "other")
        view = MatrixView.of(shape) if len(shape) == 2 else None
        variable = types.SimpleNamespace(shape=shape, path=path)
        found.append(Parameter(variable, role, view, False))
    return found


@pytest.mark.parametrize("tables, most", [(False, 0.04), (True, 0.25)])
def test_low_rank_releases_and_subspaces_are_a_small_part_of_dp_sgds_on_bert_base(tables, most):
    parameters = bert_base(tables)
    groups = [list(range(len(parameters)))]
    ranks = ranks_of(parameters, 8, (), ())
    space = LowRankSpace(parameters, groups, ranks=ranks, source=None, normal=None)
    dpsgd = numbers_of(IdentitySpace(parameters, groups))
    views = [parameters[index].view for index in ranks]
    carriers = sum(8 * (view.rows + view.columns) for view in views)
    masks = sum(view.rows + view.columns for view in views)
    assert len(ranks) == 73
    assert (numbers_of(space) + carriers + masks) / dpsgd <= most
