"""A forward is looked at again where it is another function, or uses other numbers."""

import collections
import functools
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

STEPS = 6
module_weight = 1.0


@pytest.fixture
def loop(private, data):
    """A model without clip and noise, its trainer, and batches of all rows."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    private(model, "sgd", l2_norm_clip=1e6, noise_multiplier=1e-12)
    rows = len(data()[0])
    sampler = tfdp.PoissonSampler(*data(), batch_size=rows, steps=STEPS)
    return model, tfdp.PrivateTrainer(model, sampler), iter(sampler)


def losses_of(model, batch):
    return tf.reduce_mean(model(batch["x"]) ** 2, axis=-1)


def norm(gradients):
    return float(tf.linalg.global_norm(gradients))


def of_a_cell(model):
    weight = 1.0

    def forward(batch):
        return weight * losses_of(model, batch), ()

    def change(value):
        nonlocal weight
        weight = value
        return forward

    return change


def written_anew(model):
    def change(value):
        def forward(batch):
            return value * losses_of(model, batch), ()

        return forward

    return change


def of_a_default(model):
    def change(value):
        def forward(batch, weight=value):
            return weight * losses_of(model, batch), ()

        return forward

    return change


def of_the_module(model):
    def forward(batch):
        weighted = lambda losses: module_weight * losses  # noqa: E731
        return weighted(losses_of(model, batch)), ()

    def change(value):
        global module_weight
        module_weight = value
        return forward

    return change


@pytest.mark.parametrize("made", [of_a_cell, written_anew, of_a_default, of_the_module])
def test_a_number_that_changes_between_steps_is_that_of_the_step(loop, made):
    """The weight of a term that is raised step by step, as for an autoencoder, stayed at first."""
    model, trainer, batches = loop
    change = made(model)
    found = [norm(trainer.gradients(change(value), next(batches))) for value in (1.0, 10.0, 0.5)]
    assert found[1] == pytest.approx(10.0 * found[0], rel=1e-3)
    assert found[2] == pytest.approx(0.5 * found[0], rel=1e-3)


def test_a_function_that_is_written_in_the_loop_is_traced_once(loop):
    model, trainer, batches = loop
    traces = []
    for batch in batches:

        def forward(batch):
            traces.append(None)
            return losses_of(model, batch), ()

        trainer.gradients(forward, batch)
        traces.append("step")
    first, *later = "".join("." if each is None else "|" for each in traces).split("|")[:-1]
    assert first and [len(each) for each in later] == [1, 0, 0, 0, 0]  # and is looked at once more


def test_many_traces_are_warned_of_with_the_remedy_and_that_works(loop, recwarn):
    model, trainer, batches = loop
    change, weight = written_anew(model), tf.Variable(1.0)
    for value in (1.0, 2.0, 3.0, 4.0):
        trainer.gradients(change(value), next(batches))
    assert any("tf.Variable" in str(warning.message) for warning in recwarn.list)
    forward = lambda batch: (weight * losses_of(model, batch), ())  # noqa: E731
    first = norm(trainer.gradients(forward, next(batches)))
    weight.assign(10.0)
    assert norm(trainer.gradients(forward, next(batches))) == pytest.approx(10 * first, rel=1e-3)


@pytest.mark.parametrize("made", ["tf", "keras", "layer"])
def test_variables_and_layers_that_are_made_anew_at_each_step_are_warned_of(loop, made):
    """Of the batch's maximum they moved each step by 11.3 clips for 2, without a word."""
    model, trainer, batches = loop
    make = {
        "tf": tf.Variable,
        "keras": keras.Variable,
        "layer": lambda value: keras.layers.Rescaling(1.0 / value),
    }[made]

    def forward_of(batch):
        largest = make(np.max(batch["x"], 0))
        use = largest if made == "layer" else lambda x: x / largest

        def forward(batch):
            return losses_of(model, {"x": use(batch["x"])}), ()

        return forward

    batch = next(batches)
    trainer.gradients(forward_of(batch), batch)
    batch = next(batches)
    with pytest.warns(UserWarning, match="variables and layers of the step before"):
        trainer.gradients(forward_of(batch), batch)


@pytest.mark.parametrize("made", ["tensor", "array"])
def test_a_number_of_the_loop_that_may_come_from_the_batch_is_refused(loop, made):
    """Divided by the largest number of its batch, an example is in the gradients of all."""
    model, trainer, batches = loop

    def step(batch):
        largest = tf.reduce_max(tf.abs(batch["x"]))
        largest = largest if made == "tensor" else largest.numpy()[None]

        def forward(b):
            return tf.reduce_mean(model(b["x"] / largest) ** 2, axis=-1), ()

        trainer.apply(trainer.gradients(forward, batch))

    step(next(batches))
    with pytest.raises(tfdp.UnsupportedModelError, match="computed from the batch"):
        step(next(batches))


class Subtracts:
    def __init__(self, model, mean):
        self.model, self.mean = model, mean

    def __call__(self, batch):
        return tf.reduce_mean(self.model(batch["x"] - self.mean) ** 2, axis=-1), ()

    def losses(self, batch):
        return self(batch)


def in_a_partial(model, mean):
    def forward(batch, mean):
        return tf.reduce_mean(model(batch["x"] - mean) ** 2, axis=-1), ()

    return functools.partial(forward, mean=mean)


def in_a_tuple(model, mean):
    moments = mean, tf.ones_like(mean)
    return lambda b: (tf.reduce_mean(model((b["x"] - moments[0]) / moments[1]) ** 2, axis=-1), ())


def in_a_dict(model, mean):
    moments = {"mean": [mean.numpy()]}
    return lambda b: (tf.reduce_mean(model(b["x"] - moments["mean"][0]) ** 2, axis=-1), ())


class Keeps:
    """A loop as an object that lives as long as the loop: its attribute changes, not itself."""

    def __init__(self, model):
        self.model, self.shown = model, None

    def normalised(self, x):
        return self.shifted(x) / 2.0

    def shifted(self, x):
        return x - self.mean

    def losses(self, batch):
        return losses_of(lambda x: self.model(self.normalised(x)), batch), ()


def as_an_attribute(model, mean, kept={}):  # noqa: B006
    loop = kept.setdefault(id(model), Keeps(model))
    loop.mean = mean
    return loop.losses


def in_a_helper(model, mean):
    def normalised(x):
        return x - mean

    return lambda b: (losses_of(lambda x: model(normalised(x)), b), ())


def decorated_by_a_library(model, mean):
    @tf.custom_gradient
    def centred(x):
        return x - mean, lambda upstream: upstream

    return lambda b: (losses_of(model, {"x": centred(b["x"])}), ())


def with_the_name_of_a_library(model, mean):
    @functools.wraps(keras.ops.relu)
    def centred(x):
        return x - mean

    return lambda b: (losses_of(model, {"x": centred(b["x"])}), ())


def in_a_namespace(model, mean):
    moments = types.SimpleNamespace(mean=mean, count=3)
    return lambda b: (losses_of(lambda x: model(x - moments.mean), b), ())


def in_a_partial_of_a_cell(model, mean):
    centred = functools.partial(tf.subtract, y=mean)
    return lambda b: (losses_of(lambda x: model(centred(x)), b), ())


def as_a_number_of_numpy(model, mean):
    largest = mean.numpy().max()
    return lambda b: (losses_of(lambda x: model(x / largest), b), ())


module_mean = 0.0


def centred_by_the_module(x):
    return x - module_mean


def of_the_notebook(model, mean):
    global module_mean
    module_mean = mean
    return lambda b: (losses_of(lambda x: model(centred_by_the_module(x)), b), ())


def in_an_array_that_is_filled(model, mean, kept={}):  # noqa: B006
    buffer = kept.setdefault(id(model), 0.0 * mean.numpy())
    buffer[:] = mean + len(kept)
    kept[len(kept)] = None
    return lambda b: (losses_of(lambda x: model(x - buffer), b), ())


@pytest.mark.parametrize(
    "made",
    [
        in_a_partial, in_a_tuple, in_a_dict, Subtracts, lambda *a: Subtracts(*a).losses,
        as_an_attribute, in_a_helper, in_a_namespace, in_a_partial_of_a_cell, of_the_notebook,
        as_a_number_of_numpy, in_an_array_that_is_filled, decorated_by_a_library,
        with_the_name_of_a_library,
    ],
)  # fmt: skip
def test_it_is_refused_whatever_hands_it_over(loop, made):
    model, trainer, batches = loop

    def step(batch):
        mean = tf.reduce_mean(batch["x"], 0)
        trainer.apply(trainer.gradients(made(model, mean), batch))

    step(next(batches))
    with pytest.raises(tfdp.UnsupportedModelError, match="computed from the batch"):
        step(next(batches))


class Holds:
    """A loop that keeps a statistic where the code of its forward does not name it."""

    __slots__ = ("model", "slot", "table")
    of_class = 0.0

    def __init__(self, model):
        self.model, self.slot, self.table = model, 0.0, collections.deque([0.0], 1)

    @property
    def prop(self):
        return self.slot

    @classmethod
    def shared(cls):
        return cls.of_class

    def __getitem__(self, name):
        return self.slot

    def keep(self, mean):
        self.slot, Holds.of_class, OTHER_MODULE.mean = mean, mean, mean
        self.table.append(mean)


OTHER_MODULE = types.ModuleType("statistics_of_the_loop")

UNSEEN = {
    "a property": lambda loop, x: x - loop.prop,
    "a slot": lambda loop, x: x - loop.slot,
    "a class attribute": lambda loop, x: x - Holds.of_class,
    "a classmethod": lambda loop, x: x - loop.shared(),
    "an attribute of a module": lambda loop, x: x - OTHER_MODULE.mean,
    "getattr": lambda loop, x: x - getattr(loop, "sl" + "ot"),
    "a deque": lambda loop, x: x - loop.table[0],
    "an own __getitem__": lambda loop, x: x - loop["mean"],
    "a sparse tensor": lambda loop, x: x - tf.sparse.to_dense(tf.sparse.from_dense(loop.prop)),
    "a number": lambda loop, x: x - loop.prop.numpy().max(),
}


@pytest.mark.parametrize("centred", UNSEEN.values(), ids=UNSEEN)
def test_what_code_does_not_show_is_refused_where_it_has_changed_at_the_second_release(
    loop, centred
):
    """A mean of the batch that a graph held as a constant moved 61 clips, without a word."""
    model, trainer, batches = loop
    keeps = Holds(model)

    def forward(batch):
        return losses_of(lambda x: model(centred(keeps, x)), batch), ()

    def step(number):
        batch = next(batches)
        keeps.keep(tf.reduce_mean(batch["x"], 0) + number)  # of another draw
        trainer.apply(trainer.gradients(forward, batch))

    step(0.0)
    spent = tfdp.privacy_spent(model, 1e-3)
    with pytest.raises(tfdp.UnsupportedModelError, match="computes the same at each step"):
        step(1.0)
    assert tfdp.privacy_spent(model, 1e-3) == spent > 0


@pytest.mark.parametrize("seen", ["tensor", "nothing that is named"])
def test_it_is_refused_where_two_functions_are_used_in_turn(loop, seen):
    """As for two tasks: the other function made the trainer forget what the first one used."""
    model, trainer, batches = loop
    keeps = Holds(model)

    def step(number):
        batch = next(batches)
        largest = tf.reduce_max(batch["x"]) + number
        keeps.keep(largest)

        def first(b):
            x = b["x"] / largest if seen == "tensor" else b["x"] / keeps.prop
            return losses_of(model, {"x": x}), ()

        def second(b):
            return 2.0 * losses_of(model, b), ()

        trainer.gradients(first if number % 2 == 0 else second, batch)

    step(0.0)
    step(1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="computed from the batch"):
        step(2.0)


CELL = """
largest = tf.reduce_max(tf.abs(batch["x"]))
def forward(b):
    return losses_of(model, {"x": b["x"] / largest}), ()
trainer.gradients(forward, batch)
"""


def test_it_is_refused_in_a_cell_that_is_run_again(loop):
    """A notebook compiles a cell at each run: the code is equal, and another object."""
    model, trainer, batches = loop
    notebook = {"tf": tf, "losses_of": losses_of, "model": model, "trainer": trainer}
    exec(CELL, notebook | {"batch": next(batches)})
    with pytest.raises(tfdp.UnsupportedModelError, match="computed from the batch"):
        exec(CELL, notebook | {"batch": next(batches)})


def test_two_functions_in_turn_are_traced_once_each(loop):
    model, trainer, batches = loop
    traces = []

    def first(batch):
        traces.append("first")
        return losses_of(model, batch), ()

    def second(batch):
        traces.append("second")
        return 2.0 * losses_of(model, batch), ()

    for forward in (first, second) * 2:  # and looked at once more
        trainer.gradients(forward, next(batches))
    before = len(traces)
    for forward in (first, second):
        trainer.gradients(forward, next(batches))
    assert len(traces) == before > 0


def test_batches_of_several_lengths_in_turn_are_trained(private):
    """Buckets by length: each length is traced, judged and looked at again by itself."""
    model = keras.Sequential([keras.Input((None, 2)), keras.layers.Dense(3)])
    private(model, "sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    sampling = tfdp.accounting.Sampling.poisson(64, 8)
    trainer = tfdp.PrivateTrainer(model, sampling, steps=9)

    def forward(batch):
        return tf.reduce_mean(model(batch["x"]) ** 2, axis=[1, 2]), ()

    for length in (3, 4, 5) * 3:
        batch = {"x": tf.random.normal([8, length, 2]), "presence": tf.ones([8])}
        trainer.apply(trainer.gradients(forward, batch))


def test_a_change_between_later_releases_is_noticed_and_a_new_trainer_goes_on(private, data):
    """As of a rate of dropout, which is public: the graph kept the first one without a word."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dropout(0.5), keras.layers.Dense(3)])
    private(model, "sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=20)

    def forward(batch):
        return losses_of(functools.partial(model, training=True), batch), ()

    trainer = tfdp.PrivateTrainer(model, sampler)
    batches = iter(sampler)
    for _ in range(4):
        trainer.apply(trainer.gradients(forward, next(batches)))
    model.layers[0].rate = 0.25
    with pytest.raises(tfdp.UnsupportedModelError, match="make the PrivateTrainer again"):
        for batch in batches:
            trainer.apply(trainer.gradients(forward, batch))
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=3)
    trainer = tfdp.PrivateTrainer(model, sampler)
    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))


def test_what_a_loop_keeps_beside_what_its_forward_uses_is_not_looked_at(loop):
    """Losses that are shown, and a module's tensors of other names, change at each step."""
    model, trainer, batches = loop
    keeps = Keeps(model)
    keeps.mean = tf.zeros(5)
    for batch in batches:
        trainer.apply(trainer.gradients(keeps.losses, batch))
        keeps.shown = tf.reduce_mean(batch["x"])


def test_a_function_of_tensorflow_that_is_made_anew_at_each_step_is_used(loop):
    """Calling it filled the object, which passed for another tensor from outside."""
    model, trainer, batches = loop
    teacher = keras.layers.Dense(3)
    teacher.build((None, 5))
    for batch in batches:
        asked = tf.function(teacher)

        def forward(batch, asked=asked):
            return tf.reduce_mean((model(batch["x"]) - asked(batch["x"])) ** 2, axis=-1), ()

        trainer.gradients(forward, batch)


def test_a_tensor_of_the_graph_around_a_forward_is_refused_with_a_sentence(loop):
    model, trainer, batches = loop

    @tf.function(autograph=False)
    def step(batch):
        largest = tf.reduce_max(tf.abs(batch["x"]))

        def forward(b):
            return tf.reduce_mean(model(b["x"] / largest) ** 2, axis=-1), ()

        trainer.apply(trainer.gradients(forward, batch))

    with pytest.raises(tfdp.UnsupportedModelError, match="a tensor of the graph around it"):
        step(next(batches))


def test_a_public_tensor_and_a_variable_of_the_loop_are_used(loop):
    model, trainer, batches = loop
    scale, weight = tf.constant([1.0, 2.0, 3.0]), tf.Variable(1.0)

    def forward(b):
        return tf.reduce_mean(weight * (model(b["x"]) * scale) ** 2, axis=-1), ()

    for value in (1.0, 2.0):
        weight.assign(value)
        trainer.apply(trainer.gradients(forward, next(batches)))
