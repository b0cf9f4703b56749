"""Which variables tensors were computed from, in and around functions."""

import tensorflow as tf

from tf_lowrank_dp.tracing.read_behind import handles_behind

ONE, TWO = tf.Variable(1.0), tf.Variable(2.0)
X = tf.constant(3.0)


def found_in(function, *args, **settings):
    """Handles behind what a function gives to `ask`, by the names of their variables."""
    handles = []

    def ask(tensor):
        handles.extend(handles_behind([tensor], **settings))
        return tensor

    tf.function(lambda *args: function(ask, *args))(*args)
    return {name for name, v in (("one", ONE), ("two", TWO)) for h in handles if h is v.handle}


def test_what_is_read_on_the_way_to_a_tensor_is_found_and_nothing_beside_it():
    assert found_in(lambda ask, x: ask(ONE * x) + TWO, X) == {"one"}
    assert found_in(lambda ask, x: ask(TWO + tf.stop_gradient(ONE * x)), X) == {"one", "two"}
    assert found_in(lambda ask, x: ask(x) + ONE + TWO, X) == set()
    assert handles_behind([ONE * X]) == []


def test_what_functions_that_are_called_read_is_found():
    @tf.function
    def called(x):
        return tf.cond(x > 0, lambda: x * TWO, lambda: x)

    assert found_in(lambda ask, x: ask(called(x) + ONE), X) == {"one", "two"}


def test_what_surrounds_a_loop_or_a_branch_is_found():
    def in_a_branch(ask, x):
        outside = ONE * x
        return tf.cond(x > 0, lambda: ask(outside + 1), lambda: x + TWO)

    def in_a_loop(ask, x):
        outside = ONE * x
        return tf.while_loop(lambda i: i < 3.0, lambda i: [ask(i + outside) + TWO], [0.0])

    assert found_in(in_a_branch, X) == {"one"}
    assert "one" in found_in(in_a_loop, X)


def test_arguments_of_a_function_inside_are_taken_for_all_that_was_read_before():
    def outer(ask, x):
        return tf.function(lambda argument: ask(2 * argument))(ONE * x) + TWO

    def outermost(ask, x):
        return tf.function(lambda argument: outer(ask, argument) + argument)(TWO * x)

    assert found_in(outer, X) == {"one"}
    assert found_in(outermost, X) == {"one", "two"}


def test_the_past_of_what_is_known_does_not_matter():
    known = []

    def function(ask, x):
        known.append(ONE * x)
        return ask(known[0] + TWO)

    assert found_in(function, X, known=lambda t: any(t is k for k in known)) == {"two"}
