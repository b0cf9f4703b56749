"""Every operation of a private step has a kernel for GPUs, or is meant to run on the host."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.speed.gpu.export import as_with_a_gpu
from tests.contracts.checks import losses_of, make_batch
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tests.contracts.optimizer_cases import OPTIMIZER_CASES
from tests.gpu.kernels import transfers, without_gpu_kernel
from tf_lowrank_dp._tensorflow import functions_of
from tf_lowrank_dp.training.train_step import apply_gradients

MEANT_FOR_THE_HOST = {
    ("Split", (("T", "DT_INT32"),)): "vectorized_map of a fallback splits a shape: 12 bytes",
}
"""Operations, with their types, that run on the host, and why."""


def step_graph(model, optimizer, batch):
    """The graph of one private step: everything between a batch and the updated weights."""
    with as_with_a_gpu():
        return _graph(model, optimizer, batch)


def _graph(model, optimizer, batch):
    tfdp.make_private(model)
    model.compile(optimizer, "mse", jit_compile=False)
    size = batch["y"].shape[0]
    sampler = tfdp.PoissonSampler(np.zeros((8, 1)), np.zeros((8, 1)), batch_size=size, steps=1)
    trainer = tfdp.PrivateTrainer(model, sampler)
    losses = losses_of(model)
    engine = trainer._run.engine

    def step(batch, presence):
        gradients = engine.private_gradients(lambda b: (losses(b), ()), batch, presence)
        apply_gradients(model, optimizer, engine.space, gradients, None)

    specs = tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), batch)
    presence = tf.TensorSpec([None], tf.float32)
    return tf.function(step, autograph=False).get_concrete_function(specs, presence).graph


def missing_types(graph):
    found = {(missing.type, missing.types) for missing in without_gpu_kernel(graph)}
    return found - set(MEANT_FOR_THE_HOST)


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
def test_every_layer_trains_with_kernels_of_a_gpu(case):
    keras.utils.set_random_seed(1)
    optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    graph = step_graph(build_model(case), optimizer, make_batch(case, 2))
    assert len(graph.get_operations()) > 100
    assert not missing_types(graph)


def small_cnn():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3),
            keras.layers.GroupNormalization(2),
            keras.layers.Dropout(0.5),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


@pytest.mark.parametrize("case", OPTIMIZER_CASES, ids=lambda case: case.name)
def test_every_optimizer_trains_with_kernels_of_a_gpu(case):
    optimizer = case.optimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    batch = {"x": tf.zeros([2, 8, 8, 3]), "y": tf.zeros([2, 3])}
    assert not missing_types(step_graph(small_cnn(), optimizer, batch))


def test_an_operation_without_a_kernel_is_found():
    def planted(x):
        return tf.strings.length(tf.strings.as_string(x)) + tf.cast(tf.unique(x)[0][:1], tf.int32)

    spec = tf.TensorSpec([None], tf.float32)
    graph = (
        tf.function(lambda x: tf.map_fn(planted, x[:, None], tf.int32))
        .get_concrete_function(spec)
        .graph
    )
    assert {"AsString", "StringLength"} <= {found.type for found in without_gpu_kernel(graph)}


AWAITED_BY_THE_HOST = {
    ("DynamicStitch", "Reshape", "DT_INT32"): "shape of a mean's gradient, as in plain training",
    ("AddV2", "Qr", "DT_FLOAT"): "TensorFlow decomposes on the host: m k numbers of each matrix",
}
"""What a step makes on the device and the host needs, from and for which operation, and why."""


def awaited(graph):
    found = [transfer for transfer in transfers(graph) if transfer.to_host]
    return {(transfer.producer, transfer.consumer, transfer.dtype) for transfer in found}


@pytest.mark.parametrize("case", OPTIMIZER_CASES, ids=lambda case: case.name)
def test_the_host_waits_for_nothing_but_small_orthonormal_bases(case):
    """Noise, masks and secret keys stay on the device.  Some was on the host: int32 often is."""
    optimizer = case.optimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    batch = {"x": tf.zeros([2, 8, 8, 3]), "y": tf.zeros([2, 3])}
    assert not awaited(step_graph(small_cnn(), optimizer, batch)) - set(AWAITED_BY_THE_HOST)


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
def test_the_host_waits_for_no_layer(case):
    """But for shapes, as in plain training."""
    keras.utils.set_random_seed(1)
    optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    graph = step_graph(build_model(case), optimizer, make_batch(case, 2))
    assert {dtype for *_, dtype in awaited(graph)} <= {"DT_INT32"}


def test_what_the_host_waits_for_is_found():
    @tf.function
    def inner(order, x):
        return x * tf.cast(order >= 3, tf.float32)

    def planted(variable, x):
        q = tf.linalg.qr(x + 1.0).q
        variable.assign(inner(tf.argsort(q, axis=-1), q))

    spec = tf.TensorSpec([4, 4], tf.float32)
    variable = tf.Variable(tf.zeros([4, 4]))
    graph = tf.function(lambda x: planted(variable, x)).get_concrete_function(spec).graph
    found = awaited(graph)
    assert ("AddV2", "Qr", "DT_FLOAT") in found
    assert ("TopKV2", "StatefulPartitionedCall", "DT_INT32") in found or (
        "TopKV2",
        "PartitionedCall",
        "DT_INT32",
    ) in found


WAITING = {"If", "StatelessIf", "While", "StatelessWhile", "Where", "Unique", "DynamicPartition"}
"""Operations for which the host must know a value, or how many there are."""


@pytest.mark.parametrize("name", ["dpsgd", "rgp", "lsg", "sparse", "powersgd"])
def test_no_operation_of_a_step_waits_for_the_device(name):
    arguments = {"include": ["kernel"]} if name in ("rgp", "lsg", "powersgd") else {}
    optimizer = OPTIMIZERS[name]("adam", l2_norm_clip=1.0, noise_multiplier=1.0, **arguments)
    batch = {"x": tf.zeros((2, 8, 8, 3)), "y": tf.zeros((2, 3))}
    whole = step_graph(small_cnn(), optimizer, batch).as_graph_def()
    nodes = [*whole.node, *(n for f in functions_of(whole).values() for n in f.node_def)]
    assert len(nodes) > 500 and not WAITING & {node.op for node in nodes}
