"""What a regulariser, an inner optimizer, a map or the loss of public examples reads counts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.training.state import ledger_of

FIRST, SECOND, STEPS = 1.5, 2.5, 4


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(24, 4)).astype("float32"), rng.normal(size=(24, 1)).astype("float32")


def private(*layers, z=SECOND, inner="sgd", **compiled):
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), *layers]))
    optimizer = tfdp.DPSGDOptimizer(inner, l2_norm_clip=1.0, noise_multiplier=z, delta=1e-3)
    model.compile(optimizer, loss="mse", **{"jit_compile": False, **compiled})
    return model


@pytest.fixture
def teacher():
    model = private(keras.layers.Dense(1, name="taught"), z=FIRST)
    model.fit(*data(), batch_size=6, verbose=0)
    return model.layers[0]


class Averaged(keras.constraints.Constraint):
    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, w):
        return 0.5 * (w + self.kernel)


class Copies(keras.optimizers.SGD):
    kernel = None

    def update_step(self, gradient, variable, learning_rate):
        if variable.shape == self.kernel.shape:
            variable.assign(self.kernel)


class EndsHalfWay(keras.optimizers.SGD):
    """Averages with an anchor when `fit` ends: another model, its own slots, or in Python."""

    anchors, in_python = None, False

    def build(self, variables):
        super().build(variables)
        self.first = [self.add_variable_from_reference(v, name="first") for v in variables]

    def finalize_variable_values(self, var_list):
        for variable, anchor in zip(var_list, self.anchors or self.first, strict=True):
            anchor = anchor.numpy() if self.in_python else anchor
            variable.assign(0.5 * (variable + anchor))


class Distance(keras.regularizers.Regularizer):
    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, w):
        return keras.ops.sum(keras.ops.square(w - self.kernel))


def regularized(teacher, **compiled):
    layer = keras.layers.Dense(1, kernel_regularizer=Distance(teacher.kernel))
    return private(layer, **compiled)


def constrained(teacher, **compiled):
    layer = keras.layers.Dense(1, kernel_constraint=Averaged(teacher.kernel))
    return private(layer, **compiled)


def rated(teacher, **compiled):
    """By a method of the libraries that is bound to the teacher's variable."""
    inner = keras.optimizers.SGD(teacher.bias.value.read_value)
    return private(keras.layers.Dense(1), inner=inner, **compiled)


def scheduled(teacher, **compiled):
    """By an object of Keras that was given the teacher's variable."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2], [0.1, 0.2])
    schedule.values = [teacher.bias.value, 0.2]
    return private(keras.layers.Dense(1), inner=keras.optimizers.SGD(schedule), **compiled)


def copied(teacher, **compiled):
    inner = Copies(0.1)
    inner.kernel = teacher.kernel
    return private(keras.layers.Dense(1), inner=inner, **compiled)


def spent_on(model):
    found = ledger_of(model).entries
    return sorted((entry.noise_multiplier, entry.steps) for entry in found)


BOTH = [(FIRST, STEPS), (SECOND, STEPS)]


@pytest.mark.parametrize("make", [regularized, constrained, copied, rated, scheduled])
@pytest.mark.parametrize(
    "compiled", [{}, {"jit_compile": True}, {"run_eagerly": True}], ids=["graph", "xla", "eager"]
)
def test_what_an_update_reads_of_a_private_model_was_spent(teacher, make, compiled):
    model = make(teacher, **compiled)
    model.fit(*data(), batch_size=6, verbose=0)
    assert spent_on(model) == BOTH
    entries = [LedgerEntry(Sampling.poisson(24, 6), z, steps=STEPS) for z in (FIRST, SECOND)]
    assert tfdp.privacy_spent(model) == pytest.approx(PrivacyLedger(entries).epsilon(1e-3))


def fitted(model):
    model.fit(*data(), batch_size=6, verbose=0)


def looped(model, in_graph=False):
    """By the steps of a custom loop, whose own loss asks nobody."""
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=STEPS)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=STEPS)

    def forward(batch):
        return keras.ops.square(model(batch["x"]) - batch["y"])[:, 0], ()

    def step(batch):
        trainer.apply(trainer.gradients(forward, batch))

    step = tf.function(step, autograph=False) if in_graph else step
    for batch in sampler.as_dataset():
        step(batch)


def looped_in_a_graph(model):
    looped(model, in_graph=True)


@pytest.mark.parametrize("in_graph", [False, True])
def test_what_the_update_of_a_custom_loop_reads_was_spent(teacher, in_graph):
    model = constrained(teacher)
    looped(model, in_graph)
    assert spent_on(model) == BOTH


@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize("of_others", [False, True])
def test_what_an_inner_optimizer_makes_of_weights_in_the_end_is_known_if_it_is_its_own(
    teacher, of_others, in_python, recwarn
):
    inner = EndsHalfWay(0.1)
    if of_others:
        object.__setattr__(inner, "anchors", [teacher.kernel, teacher.bias])
    inner.in_python = in_python
    model = private(keras.layers.Dense(1), inner=inner)
    model.fit(*data(), batch_size=6, verbose=0)
    unknown = of_others or in_python
    assert ledger_of(model).prior_spend_unknown == unknown
    told = ["that private steps have left" in str(each.message) for each in recwarn]
    assert any(told) == unknown


class EndsAt(keras.optimizers.SGD):
    """Takes arrays for the weights in the end."""

    def finalize_variable_values(self, var_list):
        for variable, array in zip(var_list, self.arrays, strict=True):
            variable.assign(self.share * array + (1 - self.share) * variable)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_arrays_that_an_inner_optimizer_takes_for_weights_in_the_end_are_not_known(teacher, share):
    """0.52 was stated for 6.21, of the arrays of a private model."""
    inner = EndsAt(0.1)
    object.__setattr__(inner, "arrays", [v.numpy() for v in (teacher.kernel, teacher.bias)])
    inner.share = share
    model = private(keras.layers.Dense(1), inner=inner)
    model.fit(*data(), batch_size=6, verbose=0)
    assert ledger_of(model).prior_spend_unknown


def test_averages_that_an_optimizer_puts_into_another_model_are_not_known(tmp_path):
    """A copy for evaluation that got them stated 2.14 for 9.90, in its file as well."""
    inner = keras.optimizers.SGD(0.1, use_ema=True)
    model = private(keras.layers.Dense(1), inner=inner)
    model.fit(*data(), batch_size=6, verbose=0)
    model.save(tmp_path / "early.keras")
    copy = keras.models.load_model(tmp_path / "early.keras")
    assert not ledger_of(copy).prior_spend_unknown
    model.fit(*data(), batch_size=6, verbose=0)
    model.optimizer.finalize_variable_values(copy.trainable_variables)
    assert ledger_of(copy).prior_spend_unknown
    assert not ledger_of(model).prior_spend_unknown


def labelled_by(teacher, **arguments):
    """A student whose public examples, and no others, are labelled by its loss, of a teacher."""
    public = np.random.default_rng(1).normal(size=(16, 4)).astype("float32")

    def loss(y_true, y_pred):
        wanted = teacher(y_true) if y_true.shape[-1] == 4 else y_true
        return keras.losses.mean_squared_error(tf.stop_gradient(wanted), y_pred)

    eager = arguments.pop("run_eagerly", False)
    arguments = {"noise_multiplier": SECOND, **arguments}
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    optimizer = tfdp.GEPOptimizer(
        "sgd", public_data=public, public_labels=public, num_bases=2, delta=1e-3, **arguments
    )
    model.compile(optimizer, loss, jit_compile=False, run_eagerly=eager)
    return model


@pytest.mark.parametrize("train", [fitted, looped, looped_in_a_graph])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"refresh_every": 2}, {"residual": False}, {"run_eagerly": True}],
    ids=["each step", "kept basis", "B-GEP", "eager"],
)
def test_what_the_loss_of_public_examples_reads_of_a_private_model_was_spent(
    teacher, train, arguments
):
    model = labelled_by(teacher, **arguments)
    train(model)
    assert spent_on(model) == BOTH


@pytest.mark.parametrize("train", [fitted, looped, looped_in_a_graph])
@pytest.mark.parametrize("refresh_every", [1, 2])
def test_no_step_overspends_by_what_the_loss_of_public_examples_reads(
    teacher, train, refresh_every
):
    target = {"noise_multiplier": None, "epsilon": 1.0, "planned_steps": STEPS}
    model = labelled_by(teacher, refresh_every=refresh_every, **target)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        train(model)
    assert not any(steps for z, steps in spent_on(model) if z != FIRST)


class Later(keras.regularizers.Regularizer):
    """A pull of a kernel towards a teacher's that is switched on in Python."""

    def __init__(self, kernel):
        self.kernel, self.on = kernel, False

    def __call__(self, w):
        return keras.ops.sum(keras.ops.square(w - self.kernel)) if self.on else 0.0 * w[0, 0]


class LaterInAFunction(Later):
    @tf.function(autograph=False)
    def distance(self, w):
        return tf.reduce_sum(tf.square(w - tf.convert_to_tensor(self.kernel)))

    def __call__(self, w):
        return self.distance(tf.convert_to_tensor(w)) if self.on else 0.0 * w[0, 0]


class LaterAsConstraint(Later, keras.constraints.Constraint):
    def __call__(self, w):
        return self.kernel.value if self.on else w


@pytest.mark.parametrize("kind", [Later, LaterInAFunction, LaterAsConstraint])
@pytest.mark.parametrize("train", ["loop", "fit", "two fits"])
def test_what_an_eager_update_begins_to_read_later_was_spent(teacher, train, kind):
    """It was looked at once: the student of 1.38 spent said 0.88."""
    pull = kind(teacher.kernel)
    where = "kernel_constraint" if kind is LaterAsConstraint else "kernel_regularizer"
    model = private(keras.layers.Dense(1, **{where: pull}), run_eagerly=True)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=STEPS)
    if train == "loop":
        trainer = tfdp.PrivateTrainer(model, sampler)
        for batch in sampler:
            gradients = trainer.gradients(
                lambda b: (keras.ops.square(model(b["x"]) - b["y"])[:, 0], ()), batch
            )
            trainer.apply(gradients)
            pull.on = True
    elif train == "fit":
        switch = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: setattr(pull, "on", True)
        )
        model.fit(*data(), batch_size=6, verbose=0, callbacks=[switch])
    else:
        model.fit(*data(), batch_size=6, verbose=0)
        assert spent_on(model) == [(SECOND, STEPS)]
        pull.on = True
        model.fit(*data(), batch_size=6, verbose=0)
    assert (FIRST, STEPS) in spent_on(model)


def test_what_a_map_of_records_reads_was_spent(teacher):
    records = tfdp.Records(data(), map=lambda x, y: (x, teacher(x[None])[0]))
    model = private(keras.layers.Dense(1))
    model.fit(records, batch_size=6, verbose=0)
    assert spent_on(model) == BOTH


def test_an_update_that_reads_its_own_variables_has_spent_its_own_steps_only(teacher):
    model = private(keras.layers.Dense(1, kernel_regularizer="l2"), inner="adam")
    model.fit(*data(), batch_size=6, verbose=0)
    assert spent_on(model) == [(SECOND, STEPS)]


def distilled(asked, **compiled):
    """A student of the layer in a list."""

    class Student(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.square(y_pred - asked[0](x))[:, 0]

    model = tfdp.make_private(Student())
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=SECOND, delta=1e-3)
    model.compile(optimizer, **{"jit_compile": False, **compiled})
    return model


@pytest.mark.parametrize("change", ["eager", "another batch size", "compiled anew"])
def test_a_teacher_that_is_exchanged_between_two_fits_counts(teacher, change):
    public = keras.layers.Dense(1)
    public.build((None, 4))
    asked = [public]
    model = distilled(asked, run_eagerly=change == "eager")
    model.fit(*data(), batch_size=6, verbose=0)
    assert spent_on(model) == [(SECOND, STEPS)]
    asked[0] = teacher
    if change == "compiled anew":
        model.make_train_function(force=True)
    model.fit(*data(), batch_size=8 if change == "another batch size" else 6, verbose=0)
    assert (FIRST, STEPS) in spent_on(model)


def test_a_frozen_layer_cut_out_of_a_loaded_model_knows_what_was_spent_on_it(teacher, tmp_path):
    teacher.trainable = False
    model = private(teacher, keras.layers.Dense(1))
    model.fit(*data(), batch_size=6, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").get_layer("taught")
    student = distilled([loaded])
    student.fit(*data(), batch_size=6, verbose=0)
    assert {(FIRST, STEPS), (SECOND, STEPS)} <= set(spent_on(student))
    assert len(spent_on(student)) == 3
