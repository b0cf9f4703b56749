"""What others spend between two steps of a graph counts for whatever the later steps update."""

import contextlib
import errno
import gc
import weakref

import dp_accounting
import keras
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling
from tf_lowrank_dp.accounting.ledger_file import LedgerFile
from tf_lowrank_dp.spending import SPENDING, file_of
from tf_lowrank_dp.training.state import ledger_of

DELTA, STEPS = 1e-3, 4
FIRST, SECOND, THIRD, FOURTH = 5.0, 0.5, 3.0, 0.7  # noise multipliers


def of_runs(*runs):
    """Epsilon of pairs of a noise multiplier and steps."""
    entries = [LedgerEntry(Sampling.poisson(24, 6), z, steps=steps) for z, steps in runs]
    return pytest.approx(PrivacyLedger(entries).epsilon(DELTA, accountant="rdp"))


def spent(model):
    return ledger_of(model).epsilon(DELTA, accountant="rdp")


def dense(*layers):
    return keras.Sequential([keras.Input((5,)), *layers])


def in_a_graph(model, data, forward):
    """A trainer of a private model, and what takes so many steps of its loop in a graph."""
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=2 * STEPS, pad_to_multiple=24)
    trainer = tfdp.PrivateTrainer(model, sampler)
    step = tf.function(lambda batch: trainer.apply(trainer.gradients(forward, batch)))
    batches = iter(sampler.as_dataset())

    def take(steps):
        for _ in range(steps):
            step(next(batches))

    return trainer, take


def no_room(file, line):
    """Takes the place of what writes to a ledger's file."""
    raise OSError(errno.ENOSPC, "full")


@pytest.fixture
def loop(private, data):
    """A loop in a graph over one sampler: takes a model and its forward; gives what takes steps."""

    def begin(model, noise_multiplier, forward):
        private(model, "sgd", noise_multiplier=noise_multiplier, accountant="rdp", delta=DELTA)
        return in_a_graph(model, data, forward)[1]

    return begin


@pytest.fixture
def fit(private, data):
    def train(model, noise_multiplier):
        private(model, "sgd", noise_multiplier=noise_multiplier, accountant="rdp", delta=DELTA)
        model.fit(*data(), batch_size=6, verbose=0)

    return train


def learning_from(student, teacher):
    def forward(batch):
        wanted = tf.stop_gradient(teacher(batch["x"]))
        return tf.reduce_mean((student(batch["x"]) - wanted) ** 2, axis=-1), ()

    return forward


def a_wrapper(student):
    return dense(student, keras.layers.Softmax())


def a_layer_of_it(student):
    return dense(student.layers[0])


def after_its_teacher(student):
    """A model that was asked before it may have found what others did to a teacher of both."""
    ledger_of(student.teacher)
    return student


def its_file(student):
    student.save("student.keras")
    return keras.models.load_model("student.keras")


@pytest.mark.parametrize("asked", [a_wrapper, a_layer_of_it, its_file, lambda student: student])
def test_a_teacher_that_learns_between_two_steps_of_a_graph_counts_wherever_one_asks(
    loop, fit, asked, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    teacher, student = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    take = loop(student, FIRST, learning_from(student, teacher))
    take(STEPS)
    fit(teacher, SECOND)
    take(1)
    assert spent(asked(student)) == of_runs((FIRST, STEPS + 1), (SECOND, STEPS))


def test_the_ledger_of_the_optimizer_holds_what_a_teacher_spent_between_two_steps(loop, fit):
    teacher, student = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    take = loop(student, FIRST, learning_from(student, teacher))
    take(1)
    fit(teacher, SECOND)
    take(1)
    assert student.optimizer.ledger.num_steps == 2 + STEPS


def test_a_teacher_that_is_gone_when_one_asks_counts(loop, fit):
    student = dense(keras.layers.Dense(3))

    def take_with_a_teacher():
        teacher = dense(keras.layers.Dense(3))
        take = loop(student, FIRST, learning_from(student, teacher))
        take(1)
        fit(teacher, SECOND)
        take(1)

    take_with_a_teacher()
    student.compile("sgd")
    gc.collect()
    assert spent(a_layer_of_it(student)) == of_runs((FIRST, 2), (SECOND, STEPS))


def test_what_a_teacher_learns_after_the_last_step_costs_the_student_nothing(loop, fit):
    teacher, student = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    take = loop(student, FIRST, learning_from(student, teacher))
    take(STEPS)
    fit(teacher, SECOND)
    assert spent(student) == of_runs((FIRST, STEPS))


def test_who_learns_from_a_student_has_spent_what_its_teacher_spent_between_the_steps(loop, fit):
    teacher, student, last = (dense(keras.layers.Dense(3)) for _ in range(3))
    take = loop(student, FIRST, learning_from(student, teacher))
    take_last = loop(last, THIRD, learning_from(last, student))
    take(1)
    take_last(1)
    fit(teacher, SECOND)
    take(1)
    take_last(1)  # nobody has asked in between
    assert spent(last) == of_runs((FIRST, 2), (SECOND, STEPS), (THIRD, 2))


def test_what_nobody_has_learnt_costs_who_learns_from_a_student_nothing(loop, fit):
    """A student whose teacher learns more, and that takes no step after it, said 1.048, and who
    learnt from it 28.7 for 1.27."""
    teacher, student, last = (dense(keras.layers.Dense(3)) for _ in range(3))
    fit(teacher, SECOND)
    take = loop(student, FIRST, learning_from(student, teacher))
    take(STEPS)
    fit(teacher, FOURTH)
    take_last = loop(last, THIRD, learning_from(last, student))
    take_last(2)
    assert spent(last) == of_runs((SECOND, STEPS), (FIRST, STEPS), (THIRD, 2))
    take(1)
    take_last(1)
    assert spent(last) == of_runs((SECOND, STEPS), (FOURTH, STEPS), (FIRST, STEPS + 1), (THIRD, 3))


def test_a_second_head_on_a_frozen_encoder_costs_nothing_of_the_first_heads_own_steps(
    fit, private, data
):
    """It ended after one step, at 28.7, with a target of 4.0."""
    encoder = dense(keras.layers.Dense(4))
    first, second = (dense(encoder, keras.layers.Dense(3)) for _ in range(2))
    fit(first, FIRST)
    encoder.trainable = False
    fit(first, SECOND)
    target = 1.5 * spent(second)
    private(second, "sgd", epsilon=target, accountant="rdp", delta=DELTA)
    second.fit(*data(), batch_size=6, epochs=2, verbose=0)
    noise = second.optimizer.calibrated_noise_multiplier
    assert spent(second) == of_runs((FIRST, STEPS), (noise, 2 * STEPS))
    assert spent(second) <= target


def test_a_head_depends_on_what_others_spent_on_a_shared_encoder_between_its_steps(loop, fit):
    encoder, head = keras.layers.Dense(4), keras.layers.Dense(3)
    first, second = dense(encoder, head), dense(encoder, keras.layers.Dense(3))

    def forward(batch):
        losses = keras.losses.sparse_categorical_crossentropy
        return losses(batch["y"], first(batch["x"]), from_logits=True), ()

    take = loop(first, FIRST, forward)
    take(STEPS)
    fit(second, SECOND)
    take(STEPS)
    only_head = keras.Sequential([keras.Input((4,)), head])
    assert spent(only_head) == of_runs((FIRST, 2 * STEPS), (SECOND, STEPS))


@pytest.fixture
def chain(loop, fit):
    """A private teacher, who learns from it in a graph, and who learns from a part of that."""
    teacher, head = dense(keras.layers.Dense(3)), keras.layers.Dense(3)
    student, last = dense(keras.layers.Dense(3), head), dense(keras.layers.Dense(3))
    fit(teacher, SECOND)
    take = loop(student, FIRST, learning_from(student, teacher))
    take_last = loop(last, THIRD, learning_from(last, dense(student.layers[0])))
    last.teacher = student
    return {"the teacher": teacher.layers[0], "the head": head}, take, take_last, last


@pytest.fixture
def of_a_file(fit, tmp_path):
    """A model with the values of a private file, known by nothing else."""
    model = dense(keras.layers.Dense(3))
    fit(model, FOURTH)
    model.save(tmp_path / "other.keras")
    values = keras.models.load_model(tmp_path / "other.keras").get_weights()
    return lambda layer: layer.set_weights(values)


def change(layer):
    """By others than private steps."""
    layer.kernel.assign_add(keras.ops.ones_like(layer.kernel))


ASKED = [lambda last: last, a_wrapper, a_layer_of_it, its_file, after_its_teacher]


@pytest.mark.parametrize("changed", ["the teacher", "the head"])
@pytest.mark.parametrize("asked", ASKED)
def test_what_others_did_to_what_a_teacher_reads_is_unknown_of_who_learns_from_it(
    chain, changed, asked, tmp_path, monkeypatch
):
    """It was looked at one step behind those that were asked: 5.28 without a word."""
    monkeypatch.chdir(tmp_path)
    layers, take, take_last, last = chain
    take(1)
    take_last(1)
    change(layers[changed])
    take(1)
    take_last(1)
    assert ledger_of(asked(last)).prior_spend_unknown


@pytest.mark.parametrize("asked", ASKED)
def test_values_of_a_file_that_a_teacher_reads_are_known_of_who_learns_from_it(
    chain, of_a_file, asked, tmp_path, monkeypatch
):
    """2.14 was stated for 12.26."""
    monkeypatch.chdir(tmp_path)
    layers, take, take_last, last = chain
    take(1)
    of_a_file(layers["the teacher"])
    take(1)
    take_last(1)
    found = ledger_of(asked(last)).epsilon(DELTA, accountant="rdp")
    assert found == of_runs((FIRST, 2), (SECOND, STEPS), (THIRD, 1), (FOURTH, STEPS))


def test_what_one_student_finds_in_a_teacher_is_known_of_others_who_have_read_it(
    loop, fit, of_a_file
):
    """0.98 was stated for 12.1: the teacher had other values again when that student was asked."""
    teacher, first, second = (dense(keras.layers.Dense(3)) for _ in range(3))
    take = loop(first, FIRST, learning_from(first, teacher))
    take(1)
    values = teacher.get_weights()
    of_a_file(teacher.layers[0])
    take(1)
    loop(second, THIRD, learning_from(second, teacher))(1)
    assert spent(second) == of_runs((THIRD, 1), (FOURTH, STEPS))
    teacher.set_weights(values)
    assert spent(first) == of_runs((FIRST, 2), (FOURTH, STEPS))


@pytest.mark.parametrize("how", ["values of a file", "a copy", "ordinarily", "in a block"])
def test_a_teacher_that_is_gone_gives_on_what_it_has_read(loop, fit, of_a_file, how):
    """1.64 was stated for 12.22: the way to what had gone into its steps went by its variables."""
    first, last = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    other = dense(keras.layers.Dense(3))
    if how != "a copy":
        fit(first, SECOND)
    fit(other, FOURTH)

    def learn():
        student = dense(keras.layers.Dense(3))
        held = [student]
        take = loop(student, FIRST, learning_from(student, first))
        take_last = loop(last, THIRD, learning_from(last, lambda x: held[0](x)))
        take(1)
        take_last(1)
        if how in ("values of a file", "a copy"):
            of_a_file(first.layers[0])
        elif how == "ordinarily":
            change(first.layers[0])
        else:
            first.set_weights(other.get_weights())
        take(1)
        take_last(1)
        return weakref.ref(held.pop())

    with tfdp.post_processing(first, other) if how == "in a block" else contextlib.nullcontext():
        student = learn()
        gc.collect()
        assert student() is None
    before = [] if how == "a copy" else [(SECOND, STEPS)]
    added = [] if how == "ordinarily" else [(FOURTH, STEPS)]
    assert spent(last) == of_runs((FIRST, 2), *before, (THIRD, 2), *added)
    assert ledger_of(last).prior_spend_unknown == (how in ("ordinarily", "values of a file"))


@pytest.mark.parametrize("asked", [lambda last: last, after_its_teacher])
def test_what_others_did_after_the_last_step_of_a_teacher_says_nothing_of_who_learns_from_it(
    chain, asked
):
    layers, take, take_last, last = chain
    take(1)
    take_last(1)
    change(layers["the teacher"])
    take_last(1)
    assert not ledger_of(asked(last)).prior_spend_unknown
    take(1)
    take_last(1)
    assert ledger_of(asked(last)).prior_spend_unknown


@pytest.mark.parametrize("changed", [None, "the teacher", "the head"])
def test_what_others_did_to_what_is_gone_is_unknown_of_the_encoder_that_is_kept(loop, fit, changed):
    """A function that gives back an encoder lets go of all else, before anybody asks."""

    def distilled(encoder):
        teacher, head = dense(keras.layers.Dense(3)), keras.layers.Dense(3)
        fit(teacher, SECOND)
        student = dense(encoder, head)
        take = loop(student, FIRST, learning_from(student, teacher))
        take(1)
        if changed:
            change({"the teacher": teacher.layers[0], "the head": head}[changed])
        take(1)
        return weakref.ref(teacher)

    encoder = keras.layers.Dense(3)
    teacher = distilled(encoder)
    gc.collect()
    assert teacher() is None
    assert ledger_of(dense(encoder)).prior_spend_unknown == bool(changed)
    assert spent(dense(encoder)) == of_runs((FIRST, 2), (SECOND, STEPS))


@pytest.mark.parametrize("inner", ["sgd", "adam", "rmsprop"])
def test_a_graph_is_traced_after_an_optimizer_that_another_one_has_used_is_gone(
    private, data, step_in_a_graph, inner
):
    model = dense(keras.layers.Dense(3))
    for _ in range(2):  # compiles anew
        private(model, inner, noise_multiplier=FIRST, delta=DELTA)
        gc.collect()
        sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=2)
        step = step_in_a_graph(model, sampler)
        for batch in sampler.as_dataset():
            step(batch)
    assert ledger_of(model).num_steps == 4
    assert not ledger_of(model).prior_spend_unknown


@pytest.mark.parametrize("changed", ["the teacher", "a frozen part"])
def test_steps_that_another_thread_takes_during_a_look_are_looked_at_by_the_next(
    loop, fit, monkeypatch, changed
):
    teacher, encoder = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    fit(teacher, SECOND)
    fit(encoder, SECOND)
    encoder.trainable = False
    head = keras.layers.Dense(3)
    student = dense(*encoder.layers, head)
    take = loop(student, FIRST, learning_from(student, teacher))
    take(1)
    check = SPENDING.check

    def look(variables):
        found = check(variables)
        part = {"the teacher": teacher, "a frozen part": encoder}[changed]
        if any(variable is part.layers[0].kernel for variable in variables):
            monkeypatch.undo()
            change(part.layers[0])
            take(1)
        return found

    monkeypatch.setattr(SPENDING, "check", look)
    ledger_of(student)
    assert SPENDING.check == check  # it was looked at
    assert ledger_of(keras.Sequential([keras.Input((3,)), head])).prior_spend_unknown


@pytest.mark.parametrize("asked_first", ["the whole", "a part"])
def test_values_of_a_file_in_a_frozen_part_are_known_of_what_learnt_on_them(
    loop, of_a_file, asked_first
):
    """The head said 1.83, and the whole model 12.2."""
    encoder, head = keras.layers.Dense(3), keras.layers.Dense(3)
    model = dense(encoder, head)
    encoder.trainable = False
    take = loop(model, FIRST, learning_from(model, dense(keras.layers.Dense(3))))
    take(1)
    of_a_file(encoder)
    take(2)
    if asked_first == "the whole":
        assert spent(model) == of_runs((FIRST, 3), (FOURTH, STEPS))
    only_head = keras.Sequential([keras.Input((3,)), head])
    assert spent(only_head) == of_runs((FIRST, 3), (FOURTH, STEPS))


@pytest.mark.parametrize("asked_within", [False, True])
def test_who_learns_inside_of_a_block_has_spent_what_its_model_is_made_of(loop, asked_within):
    """A block around a loop: 0.98 was stated for 9.16, until another step was taken."""
    teacher, average, student = (dense(keras.layers.Dense(3)) for _ in range(3))
    teach = loop(teacher, SECOND, learning_from(teacher, dense(keras.layers.Dense(3))))
    learn = loop(student, FIRST, learning_from(student, average))
    with tfdp.post_processing(average, teacher):
        for round in range(STEPS):
            teach(1)
            pairs = zip(average.get_weights(), teacher.get_weights(), strict=True)
            average.set_weights([(old + new) / 2 for old, new in pairs])
            learn(1)
            if asked_within and round == 1:
                assert spent(student) == of_runs((FIRST, 2), (SECOND, 2))
    assert spent(student) == of_runs((FIRST, STEPS), (SECOND, STEPS))
    with tfdp.post_processing(average, teacher):
        teach(1)
    assert spent(student) == of_runs((FIRST, STEPS), (SECOND, STEPS))  # it has taken no step since


def test_a_budget_that_is_checked_knows_what_a_graph_has_taken_over(private, data, loop, fit):
    """A target of 5 ended at 13.15, with `check_budget` before each step."""
    teacher, student, last = (dense(keras.layers.Dense(3)) for _ in range(3))
    fit(teacher, FIRST)
    take = loop(student, FIRST, learning_from(student, teacher))
    take(1)
    private(last, "sgd", epsilon=2.0, delta=DELTA, planned_steps=8, accountant="rdp")
    trainer, take_last = in_a_graph(last, data, learning_from(last, student))
    take_last(1)
    fit(teacher, SECOND)
    trainer.check_budget()
    take(1)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        trainer.check_budget()
    assert spent(last) > 2.0  # by what its next step would have read


@pytest.mark.parametrize("given", ["the teacher", "a frozen part"])
def test_a_budget_that_is_checked_knows_values_of_a_file_in_what_a_graph_reads(
    private, data, of_a_file, given
):
    """A target of 5 ended at 13.20, with `check_budget` before each step of a graph."""
    frozen = keras.layers.Dense(3, trainable=False)
    teacher, student = dense(keras.layers.Dense(3)), dense(frozen, keras.layers.Dense(3))
    private(student, "sgd", epsilon=2.0, delta=DELTA, planned_steps=8, accountant="rdp")
    trainer, take = in_a_graph(student, data, learning_from(student, teacher))
    take(1)
    trainer.check_budget()
    of_a_file({"the teacher": teacher.layers[0], "a frozen part": frozen}[given])
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        trainer.check_budget()


@pytest.mark.parametrize("full", ["the model's", "that of the other"])
def test_a_block_tells_what_was_spent_although_the_disk_is_full(tmp_path, monkeypatch, full):
    """The average of a model whose ledger's file could not be written said 4.81 for 18.94."""
    model, other = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    event = dp_accounting.GaussianDpEvent(FOURTH)
    tfdp.record_release(other, event, "counts")
    tfdp.make_private(
        model if full == "the model's" else other, ledger_path=tmp_path / "ledger.jsonl"
    )

    with pytest.warns(UserWarning, match="file lacks something.*full"):
        with tfdp.post_processing(model, other):
            monkeypatch.setattr(LedgerFile, "_write", no_room)
            SPENDING.add(other.weights, PrivacyLedger([ReleaseEntry(event, "more")]))
            model.set_weights(other.get_weights())
    assert ledger_of(model).num_steps == 2


@pytest.mark.parametrize("blocks_before", [0, 1])
def test_no_step_is_taken_until_the_file_holds_what_a_block_has_told(
    data, tmp_path, monkeypatch, blocks_before
):
    """Such as that more may have been spent, which changes no number of steps."""
    model, other = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    tfdp.make_private(model, ledger_path=tmp_path / "ledger.jsonl")
    tfdp.record_release(other, dp_accounting.GaussianDpEvent(FOURTH), "counts")
    for _ in range(blocks_before):
        with tfdp.post_processing(model, other):
            pass
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=FIRST))
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4, pad_to_multiple=24)
    trainer = tfdp.PrivateTrainer(model, sampler)
    trainer.check_budget(4)
    SPENDING.mark_unknown(other.weights)

    with monkeypatch.context() as patched:
        patched.setattr(LedgerFile, "_write", no_room)
        with pytest.warns(UserWarning, match="lacks"), tfdp.post_processing(model, other):
            pass
        for _ in range(2):
            with pytest.warns(UserWarning, match="lacks"), pytest.raises(OSError, match="full"):
                trainer.check_budget()
    trainer.check_budget()
    assert file_of(model).ledger.prior_spend_unknown


def test_steps_that_were_noted_ahead_stay_so_where_a_graph_finds_what_it_reads(data, fit, tmp_path):
    teacher, student = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    fit(teacher, SECOND)
    tfdp.make_private(student, ledger_path=tmp_path / "ledger.jsonl")
    student.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=FIRST))
    trainer, take = in_a_graph(student, data, learning_from(student, teacher))
    trainer.check_budget(STEPS)
    take(STEPS)  # the first of which traces it
    assert file_of(student).ledger.num_steps == 2 * STEPS


@pytest.mark.parametrize("asked", [spent, its_file, tfdp.make_standard])
def test_the_file_of_a_ledger_holds_what_is_found_in_what_a_graph_has_read(
    data, of_a_file, asked, tmp_path, monkeypatch
):
    """The model said 12.14 and its ledger's file 1.17, for good where no step came after."""
    monkeypatch.chdir(tmp_path)
    teacher, student = dense(keras.layers.Dense(3)), dense(keras.layers.Dense(3))
    tfdp.make_private(student, ledger_path="ledger.jsonl")
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=FIRST)
    student.compile(optimizer)
    trainer, take = in_a_graph(student, data, learning_from(student, teacher))
    trainer.check_budget(2)
    take(1)
    of_a_file(teacher.layers[0])
    take(1)
    asked(student)
    assert file_of(student).ledger.num_steps == 2 + STEPS


@pytest.mark.parametrize("read_by", ["a regularizer", "what is added to gradients"])
@pytest.mark.parametrize("in_graphs", [False, True])
def test_what_a_teacher_spends_between_a_release_and_the_update_that_reads_it_counts(
    private, data, fit, read_by, in_graphs
):
    """0.98 was stated for 12.1: the release that came before was the last."""
    teacher = dense(keras.layers.Dense(3))
    kernel = teacher.layers[0].kernel

    class Towards(keras.regularizers.Regularizer):
        def __call__(self, weights):
            return keras.ops.sum((weights - kernel) ** 2)

    regularizer = Towards() if read_by == "a regularizer" else None
    student = dense(keras.layers.Dense(3, kernel_regularizer=regularizer))
    private(student, "sgd", noise_multiplier=FIRST, accountant="rdp", delta=DELTA)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=STEPS, pad_to_multiple=24)
    trainer = tfdp.PrivateTrainer(student, sampler)
    forward = learning_from(student, dense(keras.layers.Dense(3)))

    def release(batch):
        return trainer.gradients(forward, batch)

    def update(gradients):
        if read_by != "a regularizer":
            gradients = [gradients[0] + student.layers[0].kernel - kernel, *gradients[1:]]
        trainer.apply(gradients)

    if in_graphs:
        release, update = tf.function(release), tf.function(update)
    for number, batch in enumerate(sampler.as_dataset()):
        gradients = release(batch)
        if number == STEPS - 1:
            fit(teacher, SECOND)
        update(gradients)
    if in_graphs or read_by == "a regularizer":
        assert spent(student) == of_runs((FIRST, STEPS), (SECOND, STEPS))
    else:  # as the threat model says of eager loops
        assert spent(student) == of_runs((FIRST, STEPS))


def without_bias():
    """A model whose variables all become others when it is quantised."""
    return dense(keras.layers.Dense(3, use_bias=False))


def test_the_first_look_after_quantisation_finds_what_steps_before_have_read(loop, of_a_file):
    """0.92 was stated for 12.1, once."""
    teacher, student = dense(keras.layers.Dense(3)), without_bias()
    take = loop(student, FIRST, learning_from(student, teacher))
    take(1)
    of_a_file(teacher.layers[0])
    take(1)
    student.quantize("int8")
    gc.collect()
    assert spent(student) == of_runs((FIRST, 2), (FOURTH, STEPS))


@pytest.mark.parametrize("traced", ["before the block", "inside of it"])
def test_who_has_learnt_from_a_model_that_is_quantised_inside_of_its_block(loop, traced):
    """1.11 was stated for 12.1: the graph had read variables that were others at the end."""
    teacher, average, student = without_bias(), without_bias(), dense(keras.layers.Dense(3))
    teach = loop(teacher, SECOND, learning_from(teacher, dense(keras.layers.Dense(3))))
    learn = loop(student, FIRST, learning_from(student, average))
    before = traced == "before the block"
    if before:
        learn(1)
    with tfdp.post_processing(average, teacher):
        teach(STEPS)
        average.set_weights(teacher.get_weights())
        learn(1)
        average.quantize("int8")
        gc.collect()
    assert spent(student) == of_runs((FIRST, 1 + before), (SECOND, STEPS))
