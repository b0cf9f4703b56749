"""Ways to distribute training, each tried in a process with two CPUs: prints what came of them.

`python -m tests.training.distributed_cases [CASE ...]` prints `{case: [error, message, releases]}`
as JSON.
"""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.state import ledger_of

X, Y = np.zeros((64, 3), "float32"), np.zeros((64, 1), "float32")
made = []


def model_of():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    made.append(model)
    return model


def prepare(model=None):
    model = tfdp.make_private(model_of() if model is None else model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    return model


def fit(model, x=X, y=Y, **arguments):
    model.fit(x, y, batch_size=8, steps_per_epoch=2, verbose=0, **arguments)


def loop(model, run=lambda step, batch: step(batch), distribute=lambda dataset: dataset):
    sampler = tfdp.PoissonSampler(X, Y, batch_size=8, steps=2)
    trainer = tfdp.PrivateTrainer(model, sampler)

    def step(batch):
        outputs = trainer.gradients(lambda b: (tf.reduce_sum(model(b["x"]), -1), ()), batch)
        trainer.apply(outputs)

    for batch in distribute(sampler.as_dataset()):
        run(step, batch)


def all_in_scope(strategy):
    with strategy.scope():
        fit(prepare())


def conversion_in_scope(strategy):
    model = model_of()
    with strategy.scope():
        prepare(model)


def made_in_scope(strategy):
    with strategy.scope():
        model = model_of()
    fit(prepare(model))


def layers_made_in_scope(strategy):
    with strategy.scope():
        layer = keras.layers.Dense(2)
        layer.build((None, 3))
    model = keras.Sequential([keras.Input((3,)), layer])
    made.append(model)
    fit(prepare(model))


def optimizer_in_scope(strategy):
    model = prepare()
    with strategy.scope():
        inner = keras.optimizers.Adam()
    model.compile(tfdp.DPSGDOptimizer(inner, l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    fit(model)


def compiled_in_scope(strategy):
    model = prepare()
    with strategy.scope():
        model.compile(model.optimizer, loss="mse", metrics=["mae"])
    fit(model)


def fit_in_scope(strategy):
    model = prepare()
    with strategy.scope():
        fit(model)


def evaluated_before(strategy):
    """`evaluate` builds what Keras otherwise fails to build in `fit` under a strategy."""
    with strategy.scope():
        model = model_of()
        model.compile(loss="mse")
    model.evaluate(X[:16], Y[:16], verbose=0)
    fit(prepare(model))


def trainer_in_scope(strategy):
    model = prepare()
    with strategy.scope():
        loop(model)


def trainer_of_a_model_in_scope(strategy):
    with strategy.scope():
        model = model_of()
    model = prepare(model)
    loop(model)


def gradients_in_run(strategy):
    loop(prepare(), run=lambda step, batch: strategy.run(step, args=(batch,)))


def gradients_in_a_traced_run(strategy):
    run = tf.function(lambda step, batch: strategy.run(step, args=(batch,)))
    loop(prepare(), run=run)


def apply_in_run(strategy):
    model = prepare()
    trainer = tfdp.PrivateTrainer(model, tfdp.PoissonSampler(X, Y, batch_size=8, steps=2))
    gradients = [tf.zeros(v.shape) for v in model.trainable_variables]
    strategy.run(trainer.apply, args=(gradients,))


def distributed_data(strategy):
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((X, Y)))
    fit(prepare(), data, None, sampling="poisson", num_examples=64)


def distributed_data_from_function(strategy):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    data = strategy.distribute_datasets_from_function(lambda context: dataset)
    fit(prepare(), data, None, sampling="poisson", num_examples=64)


def distributed_iterator(strategy):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    data = iter(strategy.experimental_distribute_dataset(dataset))
    fit(prepare(), data, None, sampling="poisson", num_examples=64)


def trainer_of_distributed_data(strategy):
    dataset = tf.data.Dataset.from_tensor_slices({"x": X, "presence": Y[:, 0]}).batch(8)
    tfdp.PrivateTrainer(prepare(), strategy.experimental_distribute_dataset(dataset), steps=2)


def gradients_of_distributed_batches(strategy):
    model = prepare()
    loop(model, distribute=strategy.experimental_distribute_dataset)


def active_keras_distribution(distribution):
    model = prepare()
    keras.distribution.set_distribution(distribution)
    try:
        fit(model)
    finally:
        keras.distribution.set_distribution(None)


def tf_config(cluster):
    """A model that was made before: `fit` and trainers look as well."""
    model = prepare()
    task = {"type": "worker", "index": 0}
    os.environ["TF_CONFIG"] = (
        cluster if isinstance(cluster, str) else json.dumps({"cluster": cluster, "task": task})
    )
    try:
        fit(model)
    finally:
        del os.environ["TF_CONFIG"]


def ordinary(_):
    """What is no distribution: the default strategy's scope, two devices, one of them chosen."""
    with tf.distribute.get_strategy().scope():
        model = prepare()
        fit(model)
    with tf.device("CPU:1"):
        loop(model)


IN_MIRRORS = [
    all_in_scope,
    conversion_in_scope,
    made_in_scope,
    layers_made_in_scope,
    optimizer_in_scope,
    compiled_in_scope,
    fit_in_scope,
    evaluated_before,
    trainer_in_scope,
    trainer_of_a_model_in_scope,
    gradients_in_run,
    gradients_in_a_traced_run,
    apply_in_run,
    distributed_data,
    distributed_data_from_function,
    distributed_iterator,
    trainer_of_distributed_data,
    gradients_of_distributed_batches,
]
ELSEWHERE = [all_in_scope, made_in_scope, fit_in_scope, gradients_in_run, distributed_data]
CLUSTERS = {
    "two workers": {"worker": ["a:1", "b:1"]},
    "chief and worker": {"chief": ["a:1"], "worker": ["b:1"]},
    "parameter server": {"worker": ["a:1"], "ps": ["b:1"]},
    "unreadable": "{",
}
ALONE = {"one worker": {"worker": ["a:1"]}, "no cluster": {}}


def cases():
    """Yields names and functions; the strategies are made when they are needed."""
    workers = tf.distribute.MultiWorkerMirroredStrategy()  # can only be made at the start
    strategies = {
        "mirrored": (tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), IN_MIRRORS),
        "workers": (workers, ELSEWHERE),
        "central": (tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]), ELSEWHERE),
        "one device": (tf.distribute.OneDeviceStrategy("CPU:1"), ELSEWHERE),
    }
    for name, (strategy, functions) in strategies.items():
        for function in functions:
            yield f"{name}: {function.__name__}", function, strategy
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices=["cpu:0", "cpu:1"])
    by_model = keras.distribution.ModelParallel(
        layout_map=keras.distribution.LayoutMap(mesh), batch_dim_name="batch"
    )
    by_data = keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"])
    yield "keras: data", active_keras_distribution, by_data
    yield "keras: model", active_keras_distribution, by_model
    for name, cluster in {**CLUSTERS, **ALONE}.items():
        yield f"TF_CONFIG: {name}", tf_config, cluster
    yield "ordinary", ordinary, None


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    found = {}
    for name, function, argument in cases():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        error = None
        try:
            function(argument)
        except Exception as raised:
            error = raised
        model = made[-1]
        releases = ledger_of(model).num_steps if isinstance(model, keras.Model) else 0
        found[name] = [type(error).__name__, str(error), releases]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
