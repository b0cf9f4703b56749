"""What others did to the values that a private step reads leaves its own spend unknown."""

import warnings

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.state import ledger_of

DELTA = 1e-3


def is_unknown(model):
    return ledger_of(model).prior_spend_unknown


def ordinarily_trained(model, data):
    other = keras.Sequential(model.layers)
    other.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    other.fit(*data(), verbose=0)


@pytest.fixture
def teacher(private, small_model, data):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    model.fit(*data(), batch_size=8, verbose=0)
    return model


@pytest.fixture
def student(private, small_model):
    def make(teacher, **arguments):
        def distance(x, outputs):
            return tf.reduce_mean((outputs - tf.stop_gradient(teacher(x))) ** 2, axis=-1)

        arguments.setdefault("noise_multiplier", 2.0)
        return private(small_model(seed=1), loss=distance, delta=DELTA, **arguments)

    return make


def fitted(model, data, **arguments):
    x, _ = data()
    model.fit(x, x, batch_size=8, verbose=0, **arguments)


def a_step(trainer, learner, teacher, sampler, in_graph):
    """A step of a loop in which one model learns from another; a graph is traced once."""

    def forward(batch):
        outputs = learner(batch["x"], training=True)
        wanted = tf.stop_gradient(teacher(batch["x"]))
        return tf.reduce_mean((outputs - wanted) ** 2, axis=-1), ()

    def step(batch):
        trainer.apply(trainer.gradients(forward, batch))

    spec = sampler.as_dataset().element_spec
    return tf.function(step, input_signature=[spec]) if in_graph else step


def test_a_teacher_that_was_trained_ordinarily_before(student, teacher, data):
    learner = student(teacher)
    ordinarily_trained(teacher, data)
    fitted(learner, data)
    assert is_unknown(learner)


def test_a_teacher_that_is_trained_ordinarily_between_two_fits(student, teacher, data):
    learner = student(teacher)
    fitted(learner, data)
    assert not is_unknown(learner)
    ordinarily_trained(teacher, data)
    assert not is_unknown(learner)  # no step has read it
    fitted(learner, data)
    assert is_unknown(learner)


def test_a_teacher_that_a_callback_trains_ordinarily(student, teacher, data):
    learner = student(teacher)
    hook = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: ordinarily_trained(teacher, data)
    )
    fitted(learner, data, epochs=3, callbacks=[hook])
    assert is_unknown(learner)


@pytest.mark.parametrize("asked", ["the student", "its optimizer", "a file by Keras", "a part"])
@pytest.mark.parametrize("in_graph", [False, True])
def test_a_teacher_that_is_trained_ordinarily_between_steps_of_a_loop(
    private, small_model, teacher, data, in_graph, asked, tmp_path
):
    learner = private(small_model(seed=1), noise_multiplier=2.0, delta=DELTA)
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=6)
    trainer = tfdp.PrivateTrainer(learner, sampler)
    step = a_step(trainer, learner, teacher, sampler, in_graph)
    batches = iter(sampler.as_dataset())
    step(next(batches))
    assert not is_unknown(learner)
    ordinarily_trained(teacher, data)
    step(next(batches))
    if asked == "its optimizer":
        assert learner.optimizer.ledger.prior_spend_unknown
    elif asked == "a file by Keras":
        keras.saving.save_model(learner, tmp_path / "learner.keras")
        assert is_unknown(keras.models.load_model(tmp_path / "learner.keras"))
    elif asked == "a part":
        assert is_unknown(keras.Sequential(learner.layers[:1]))
    assert is_unknown(learner)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("changed", ["another layer", "what the optimizer keeps"])
def test_a_part_knows_what_others_changed_of_the_rest_between_steps(
    private, small_model, data, in_graph, changed
):
    """In a graph the layer whose steps had read a changed head did not say "unknown"."""
    model = private(small_model(), keras.optimizers.SGD(momentum=0.9), noise_multiplier=2.0)
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=6)
    trainer = tfdp.PrivateTrainer(model, sampler)
    step = a_step(trainer, model, model, sampler, in_graph)
    part = keras.Sequential([keras.Input((5,)), model.layers[0]])
    batches = iter(sampler.as_dataset())
    step(next(batches))
    assert not is_unknown(part)
    slots = model.optimizer.inner_optimizer.momentums
    other = model.layers[-1].kernel if changed == "another layer" else slots[-1]
    other.assign_add(keras.ops.ones_like(other))
    step(next(batches))
    assert is_unknown(part)
    assert is_unknown(model)


@pytest.mark.parametrize("asked", ["in its loss", "in a layer"])
def test_a_copy_of_a_file_that_is_asked_has_spent_what_the_file_says(
    private, small_model, student, teacher, data, tmp_path, asked
):
    teacher.save(tmp_path / "teacher.keras")
    loaded, copy = keras.models.load_model(tmp_path / "teacher.keras"), small_model()
    copy.set_weights(loaded.get_weights())
    if asked == "in its loss":
        learner = student(copy)
        fitted(learner, data)
    else:
        ask = keras.layers.Lambda(lambda x: copy(x), output_shape=(3,))
        learner = keras.Sequential([keras.Input((5,)), ask, keras.layers.Dense(3)])
        private(learner, noise_multiplier=2.0, delta=DELTA)
        learner.fit(*data(), batch_size=8, verbose=0)
    steps = teacher.optimizer.ledger.num_steps
    assert ledger_of(learner).num_steps == steps + learner.optimizer.iterations.numpy()
    assert not is_unknown(learner)


def test_a_budget_counts_what_the_file_of_a_copy_says(
    student, small_model, teacher, data, tmp_path
):
    teacher.save(tmp_path / "teacher.keras")
    copy = small_model()
    copy.set_weights(keras.models.load_model(tmp_path / "teacher.keras").get_weights())
    epsilon = 1.2 * tfdp.privacy_spent(teacher, DELTA)
    learner = student(copy, epsilon=epsilon, noise_multiplier=None)
    fitted(learner, data, epochs=20)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        fitted(learner, data, epochs=20)
    assert tfdp.privacy_spent(learner, DELTA) <= epsilon
    assert ledger_of(learner).num_steps > teacher.optimizer.ledger.num_steps


class BuiltLater(keras.Model):
    """Makes its layers when it sees the first inputs."""

    def build(self, shape):
        self.encoder, self.head = keras.layers.Dense(4), keras.layers.Dense(3)
        self.encoder.build(shape)
        self.head.build((None, 4))

    def call(self, x):
        return self.head(self.encoder(x))


@pytest.mark.parametrize("kind", ["subclass", "sequential"])
def test_what_is_built_inside_of_post_processing_has_spent_what_is_stated(teacher, data, kind):
    """An encoder cut out of it said 0.0, and ordinary training of it later was not noticed."""
    x, _ = data()
    layers = [keras.layers.Dense(4), keras.layers.Dense(3)]
    model = BuiltLater() if kind == "subclass" else keras.Sequential(layers)
    model.compile("adam", "mse")
    with tfdp.post_processing(model, teacher):
        model.fit(x, teacher.predict(x, verbose=0), verbose=0)
    encoder = model.encoder if kind == "subclass" else layers[0]
    cut = keras.Sequential([keras.Input((5,)), encoder])
    assert tfdp.privacy_spent(cut, DELTA) == tfdp.privacy_spent(teacher, DELTA) > 0
    assert not is_unknown(cut) and not is_unknown(model)
    model.fit(x, x[:, :3], verbose=0)
    assert is_unknown(model) and is_unknown(cut)


def test_a_generator_that_is_updated_between_the_steps_that_read_it_is_known(
    private, small_model, data
):
    critic, generator = small_model(outputs=1), small_model(seed=1, outputs=5)
    private(critic, noise_multiplier=2.0, delta=DELTA)
    sampler = tfdp.PoissonSampler(data()[0], batch_size=8, steps=3)
    trainer = tfdp.PrivateTrainer(critic, sampler)
    inner = keras.optimizers.Adam()

    def forward(batch):
        made = tf.stop_gradient(generator(batch["x"]))
        return (critic(batch["x"]) - critic(made))[:, 0], ()

    with tfdp.post_processing(generator, critic):
        for batch in sampler:
            trainer.apply(trainer.gradients(forward, batch))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(critic(generator(tf.ones((2, 5)))))
            gradients = tape.gradient(loss, generator.trainable_variables)
            inner.apply_gradients(zip(gradients, generator.trainable_variables, strict=True))
            assert not is_unknown(critic) and not is_unknown(generator)
    assert not is_unknown(critic) and not is_unknown(generator)


def test_post_processing_inside_of_a_graph_is_refused(teacher):
    """It ran once, while the graph was traced: an average said that nothing was released."""

    @tf.function
    def average():
        with tfdp.post_processing(teacher):
            teacher.layers[0].bias.assign_add(tf.ones(4))

    with pytest.raises(RuntimeError, match="inside of one"):
        average()


@pytest.mark.parametrize("in_graph", [False, True])
def test_the_budget_of_a_loop_counts_what_its_teacher_has_spent(
    private, small_model, teacher, data, in_graph, tmp_path
):
    """A target of 1.45 ended at 1.90, and the ledger's file left the teacher out for good."""
    target = 1.3 * tfdp.privacy_spent(teacher, DELTA)
    path = tmp_path / "ledger.jsonl"
    learner = small_model(seed=1)
    tfdp.make_private(learner, ledger_path=path)
    learner.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, epsilon=target, delta=DELTA))
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=40)
    trainer = tfdp.PrivateTrainer(learner, sampler)
    step = a_step(trainer, learner, teacher, sampler, in_graph)
    trainer.check_budget(10)
    with pytest.raises((tfdp.PrivacyBudgetExceededError, tf.errors.InvalidArgumentError)):
        for batch in sampler.as_dataset():
            step(batch)
    assert trainer._run.steps > 0
    assert tfdp.privacy_spent(learner, DELTA) <= target
    lines = path.read_text().splitlines()
    assert any(teacher.optimizer.ledger.entries[0].entry_id in line for line in lines)


def test_a_quantised_teacher_counts_with_its_new_variables(private, student, data):
    layers = [keras.layers.Dense(4, use_bias=False), keras.layers.Dense(3, use_bias=False)]
    teacher = keras.Sequential([keras.Input((5,)), *layers])
    private(teacher, noise_multiplier=2.0, delta=DELTA)
    teacher.fit(*data(), batch_size=8, verbose=0)
    steps = teacher.optimizer.ledger.num_steps
    teacher.quantize("int8")
    learner = student(teacher)
    fitted(learner, data)
    assert ledger_of(learner).num_steps == steps + learner.optimizer.iterations.numpy()
    assert not ledger_of(learner).prior_spend_unknown
    teacher.layers[0].kernel_scale.assign(teacher.layers[0].kernel_scale * 2.0)  # by others
    fitted(learner, data)
    assert ledger_of(learner).prior_spend_unknown and ledger_of(teacher).prior_spend_unknown


@pytest.mark.parametrize("how", ["release", "file", "teacher"])
def test_nothing_is_recorded_for_a_model_whose_variables_do_not_exist(how, tmp_path):
    """They would not know it: a student was told 0.51 of 1.01."""
    event, path = dp_accounting.GaussianDpEvent(4.0), tmp_path / "ledger.jsonl"
    known = tfdp.make_private(
        keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]), ledger_path=path
    )
    tfdp.record_release(known, event, "mean")
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(3)])

    def record():
        if how == "release":
            tfdp.record_release(model, event, "mean")
        if how == "file":
            tfdp.make_private(model, ledger_path=path)
        if how == "teacher":
            with tfdp.post_processing(model, known):
                pass

    with pytest.raises(ValueError, match="is built.*Call it on a batch"):
        record()
    model.build((None, 5))
    record()
    cut = keras.Sequential([keras.Input((5,)), model.layers[0]])
    assert ledger_of(cut).num_steps == 1


def test_a_model_that_keras_calls_built_may_lack_variables(tmp_path):
    """After `build`, or a call of one path: a student was told 0.79 of 3.29."""

    class Paths(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(3), keras.layers.Dense(3)

        def call(self, x, both=True):
            return self.first(x) + self.second(x) if both else self.first(x)

    event, x = dp_accounting.GaussianDpEvent(4.0), np.zeros((2, 5), "float32")
    for build in (lambda model: model.build((None, 5)), lambda model: model(x, both=False)):
        model = tfdp.make_private(Paths())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras' own, of the build
            build(model)
        assert model.built
        with pytest.raises(ValueError, match="without those of.*Call it on a batch"):
            tfdp.record_release(model, event, "mean")
        model(x)
        tfdp.record_release(model, event, "mean")
        cut = keras.Sequential([keras.Input((5,)), model.second])
        assert ledger_of(cut).num_steps == 1


def test_copies_that_take_turns_in_a_teacher_count_each(
    private, small_model, student, data, tmp_path
):
    values, steps = [], 0
    for number in range(3):
        model = private(small_model(seed=number), noise_multiplier=2.0, delta=DELTA)
        model.fit(*data(), batch_size=8, verbose=0)
        steps += model.optimizer.ledger.num_steps
        model.save(tmp_path / "teacher.keras")
        values.append(keras.models.load_model(tmp_path / "teacher.keras").get_weights())
    teacher = small_model()
    learner = student(teacher)
    hook = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: teacher.set_weights(values[batch])
    )
    fitted(learner, data, callbacks=[hook])
    assert ledger_of(learner).num_steps == steps + learner.optimizer.iterations.numpy()


def test_a_change_that_a_graph_has_met_stays_noticed_when_it_is_undone(private, small_model, data):
    """The head has learnt on it meanwhile."""
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    model.fit(*data(), batch_size=8, verbose=0)
    model.layers[0].trainable = False
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=6)
    trainer = tfdp.PrivateTrainer(model, sampler)

    def forward(batch):
        logits = model(batch["x"], training=True)
        entropy = keras.losses.sparse_categorical_crossentropy
        return entropy(batch["y"], logits, from_logits=True), ()

    draws = sampler.as_dataset()
    step = tf.function(
        lambda batch: trainer.apply(trainer.gradients(forward, batch)),
        input_signature=[draws.element_spec],
    )
    batches = iter(draws)
    step(next(batches))
    before = model.layers[0].get_weights()
    model.layers[0].set_weights([value + data()[0].mean() for value in before])
    step(next(batches))
    model.layers[0].set_weights(before)
    assert is_unknown(model)
