"""The owner's own laws: unions, what is undone, and ledgers that contradict one another."""

import dataclasses
import gc
import threading
import weakref

import keras
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.spending import Record, Spending
from tf_lowrank_dp.spending.values import stored_digests

ENTRY = LedgerEntry(Sampling.poisson(100, 10), noise_multiplier=1.0, entry_id="run")


def ledger(steps, **changes):
    return PrivacyLedger([dataclasses.replace(ENTRY, steps=steps, **changes)])


@pytest.fixture
def owner():
    return Spending()


@pytest.fixture
def run():
    counter = tf.Variable(0, dtype=tf.int64)
    return Record(entry=ENTRY, counter=counter), counter


def test_steps_are_those_of_the_counter_whenever_they_are_asked_for(owner, run):
    record, counter = run
    variable = tf.Variable(0.0)
    owner.begin(record, [variable], [])
    for steps in (0, 1, 7):
        counter.assign(steps)
        assert owner.ledger([variable]) == ledger(steps)


@pytest.mark.parametrize("loaded", [3, 9])
def test_a_loaded_ledger_raises_the_steps_and_never_lowers_them(owner, run, loaded):
    record, counter = run
    variable = tf.Variable(0.0)
    owner.begin(record, [variable], [])
    counter.assign(5)
    owner.adopt([variable], ledger(loaded))
    assert owner.ledger([variable]) == ledger(max(5, loaded))


def test_what_changes_after_a_file_has_brought_its_value_is_noticed(owner):
    variable = tf.Variable([1.0, 2.0])
    owner.adopt([variable], ledger(3), stored_digests([variable]))
    variable.assign([1.0, 3.0])  # before anybody has looked at it
    assert owner.check([variable])


def test_looks_at_each_step_of_a_long_loop_keep_a_bounded_number_of_values(owner, run):
    """Who puts back one of the last 10,000 values is known to; an older one passes for another."""
    record, counter = run
    variable, looks = tf.Variable([0.0, 0.0]), 10_500
    owner.begin(record, [variable], [])
    for step in range(looks):
        counter.assign_add(1)
        variable.assign([step, 1.0])
        owner.see([variable])
    variable.assign([looks - 9_999, 1.0])
    assert not owner.check([variable])
    variable.assign([0.0, 1.0])
    assert owner.check([variable])


def test_an_older_ledger_of_a_run_that_goes_on_stays_what_it_was(owner, run):
    record, counter = run
    trained, restored = tf.Variable(0.0), tf.Variable(0.0)
    owner.begin(record, [trained], [])
    counter.assign(9)
    owner.adopt([restored], ledger(4))
    assert owner.ledger([trained]).num_steps == 9
    assert owner.ledger([restored]).num_steps == 4
    assert owner.ledger([trained, restored]).num_steps == 9


def test_things_are_known_by_identity_not_by_value(owner):
    one, equal = tf.Variable(0.0), tf.Variable(0.0)
    owner.adopt([one], ledger(4))
    assert owner.ledger([equal]).num_steps == 0


def test_what_is_loaded_into_an_optimizer_reaches_things_that_are_linked_later(owner):
    class Optimizer:
        pass

    optimizer, early, late, other = Optimizer(), tf.Variable(0.0), tf.Variable(0.0), Optimizer()
    owner.link(optimizer, [early])
    owner.adopt([optimizer], ledger(4))
    owner.link(optimizer, [late])
    del optimizer
    for variable in (early, late):
        assert owner.ledger([variable]).num_steps == 4
    owner.link(other, [early])
    assert owner.ledger([other]).num_steps == 4


def test_a_ledger_that_contradicts_what_is_known_is_refused_and_adds_nothing(owner):
    variable = tf.Variable(0.0)
    owner.adopt([variable], ledger(4))
    with pytest.raises(ValueError, match="to identify one run"):
        owner.adopt([variable], ledger(4, noise_multiplier=2.0))
    assert owner.ledger([variable]) == ledger(4)


def test_what_a_failed_load_added_is_undone(owner):
    known, new = tf.Variable(0.0), tf.Variable(0.0)
    owner.adopt([known], ledger(4))
    with pytest.raises(OSError), owner.undone_on_error():
        owner.adopt([known, new], ledger(9))
        owner.adopt([known], PrivacyLedger(prior_spend_unknown=True))
        raise OSError
    assert owner.ledger([known]) == ledger(4)
    assert owner.ledger([new]) == PrivacyLedger()


def test_what_others_spend_while_a_load_fails_stays(owner, run):
    record, counter = run
    loaded, trained, known = tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)

    def others():
        owner.begin(record, [trained, loaded], [])
        owner.adopt([known], ledger(4, entry_id="other"))
        owner.mark_unknown([known])
        counter.assign(3)

    with pytest.raises(OSError), owner.undone_on_error():
        owner.adopt([loaded], ledger(9, entry_id="file"))
        thread = threading.Thread(target=others)
        thread.start()
        thread.join()
        raise OSError
    assert owner.ledger([trained]) == owner.ledger([loaded]) == ledger(3)
    assert owner.ledger([known]).num_steps == 4 and owner.ledger([known]).prior_spend_unknown


def test_a_graph_in_which_somebody_asks_has_no_variables_of_others(owner, run):
    """It could not be called any more when they no longer exist."""
    record, counter = run
    variable = tf.Variable([0.0, 1.0])
    owner.begin(record, [variable], [])
    counter.assign(3)

    def ask():
        owner.see([variable])
        owner.expect([variable])
        owner.hold([variable])
        assert owner.let_go([variable])
        assert not owner.check([variable])
        owner.remember([variable])
        assert owner.ledger([variable]) == ledger(3)

    assert not tf.function(ask).get_concrete_function().variables


def test_a_read_inside_of_a_step_hides_nothing_that_others_did_to_a_teacher_before(owner):
    """It looks at what is new, and a later look still tells what an earlier step depends on."""
    encoder, head, student, noise = (keras.Variable([0.0, 1.0]) for _ in range(4))
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    teaching, learning = (
        Record(entry=dataclasses.replace(ENTRY, entry_id=name), counter=counter)
        for name, counter in zip("ab", counters, strict=True)
    )
    owner.adopt([head], ledger(4, entry_id="before"))
    owner.begin(teaching, [encoder], [encoder, head])
    owner.begin(learning, [student], [encoder, head])
    counters[0].assign(1)
    owner.see([encoder, head])
    owner.look_at([encoder, head])
    head.assign([2.0, 3.0])  # by others
    counters[0].assign(2)
    encoder.assign([4.0, 5.0])  # by the teacher's step, which reads the head
    owner.read(learning, [noise.value.handle])
    owner.look_at([head])
    assert owner.ledger([encoder]).prior_spend_unknown


def test_what_nobody_holds_any_more_leaves_nothing_behind(owner):
    variable = keras.Variable([0.0, 1.0])
    counter = tf.Variable(0, dtype=tf.int64)
    owner.begin(Record(entry=ENTRY, counter=counter), [variable], [variable])
    handle = weakref.ref(variable.value.handle)
    del variable
    gc.collect()
    assert handle() is None


def test_what_was_learnt_before_a_refused_load_stays_although_it_brought_the_same(owner):
    """A student that is gone had learnt it, and nobody had asked."""
    teacher, student, last = (tf.Variable([0.0, 1.0]) for _ in range(3))
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    first, second = (
        Record(entry=dataclasses.replace(ENTRY, entry_id=name), counter=counter)
        for name, counter in zip(("student", "last"), counters, strict=True)
    )
    owner.begin(first, [student], [teacher])
    owner.begin(second, [last], [student])
    record = owner.add([teacher], ledger(4, entry_id="file"))
    counters[0].assign_add(1)
    del student
    with pytest.raises(OSError), owner.undone_on_error():
        loaded = tf.Variable([3.0, 4.0])
        owner.know(stored_digests([loaded]), record)
        owner.recognise([loaded])
        owner.ledger([last])
        raise OSError
    counters[1].assign_add(1)
    assert {entry.entry_id for entry in owner.ledger([last]).entries} == {"student", "last", "file"}


EVENTS = st.lists(st.sampled_from(["teacher", "student", "last", "ask"]), max_size=14)


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_whoever_learns_from_a_student_has_what_that_has_learnt_and_nothing_that_it_has_not(events):
    """Three in a chain, in any order of steps.

    What is stated holds all that values depend on; and nothing that nobody could have learnt, as
    either of two did not take a step since the teacher had it.
    """
    owner, values = Spending(), {name: tf.Variable([0.0]) for name in ("student", "last")}
    teacher = tf.Variable([0.0])
    counters = {name: tf.Variable(0, dtype=tf.int64) for name in values}
    runs = {
        name: Record(entry=dataclasses.replace(ENTRY, entry_id=name), counter=counter)
        for name, counter in counters.items()
    }
    owner.begin(runs["student"], [values["student"]], [teacher])
    owner.begin(runs["last"], [values["last"]], [values["student"]])
    spent: set[str] = set()
    learnt: dict[str, set[str]] = {name: set() for name in values}
    possible: dict[str, set[str]] = {name: set() for name in values}
    stepped: dict[str, set[str]] = {}
    for event in events:
        if event == "teacher":
            run = f"teacher {len(spent)}"
            spent.add(run)
            stepped[run] = set()
            entry = dataclasses.replace(ENTRY, entry_id=run)
            owner.begin(Record(entry=entry, counter=tf.Variable(2, dtype=tf.int64)), [teacher], [])
        elif event in values:
            counters[event].assign_add(1)
            learnt[event] |= spent if event == "student" else learnt["student"]
            for since in stepped.values():
                since.add(event)
        for run, since in stepped.items():
            possible["student"] |= {run} if "student" in since else set()
            possible["last"] |= {run} if since >= {"student", "last"} else set()
        if event == "ask" or event is events[-1]:
            for name, value in values.items():
                stated = {entry.entry_id for entry in owner.ledger([value]).entries} - {*runs}
                assert learnt[name] - {*runs} <= stated - {name} <= possible[name]
