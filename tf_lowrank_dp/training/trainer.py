"""Private gradients in a custom training loop."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import CodeType

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.gradient_methods.trial import forget_plan
from tf_lowrank_dp.layers.whole_layers import whole_layers
from tf_lowrank_dp.optimizers.ledger_in_file import values_of
from tf_lowrank_dp.sampling import DRAW, PRESENCE, PoissonSampler
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.agreement import refuse_custom_loop
from tf_lowrank_dp.training.budget import budget_in_graph, check_budget
from tf_lowrank_dp.training.counted_reads import count_reads
from tf_lowrank_dp.training.distribution import refuse_distribution
from tf_lowrank_dp.training.draws import Draws, all_hold, refuse, withheld
from tf_lowrank_dp.training.function_code import Code
from tf_lowrank_dp.training.given_forward import check_batch, spec_of, with_outputs
from tf_lowrank_dp.training.handed_out import HandedOut
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs, refuse_composites
from tf_lowrank_dp.training.loop_graph import JudgedForward, LoopGraph
from tf_lowrank_dp.training.other_releases import (
    map_of,
    note_adapted_layers,
    warn_about_adapted_layers,
)
from tf_lowrank_dp.training.public_overlap import warn_about_overlap
from tf_lowrank_dp.training.read_around import count_what_is_behind
from tf_lowrank_dp.training.start_run import start_run, units_of_parts
from tf_lowrank_dp.training.state import look, refuse_other_variables, state_of
from tf_lowrank_dp.training.train_step import apply_gradients, private_optimizer
from tf_lowrank_dp.training.validate_model import validate_model
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside

_MANY_TRACES = 4
_TRACED_ANEW = (
    f"forward was looked at and traced {_MANY_TRACES} times, as it was another function each time, "
    "or used other Python numbers. Pass the same one, and keep numbers that change, such as the "
    "weight of a term, in a tf.Variable: what else it uses of the loop, and what it was when the "
    "function was first traced, cannot be compared with numbers that change."
)


class PrivateTrainer:
    """Per-example losses in, private gradients out: the primitive below `fit`.

    Every call of `gradients` is one release: it is counted in the model's ledger, in graphs as
    well, and checked against the budget before it is made (in a `tf.function` call `check_budget`
    yourself before each step: tracing sees only the first, and the graph fails with TensorFlow's
    own error where the budget that it was traced with ends).

    It is accounted as a release of a draw of its own, so each batch of the sampler has one call.
    Batches say in `draw` which they are: one that comes again, out of a cache for example, that
    is of a sampler of another rate, or that has other rows than were drawn, is refused, in graphs
    as well.  In a `tf.function(jit_compile=True)`, where TensorFlow drops errors, gradients are
    then NaN, as they are after the budget.  Where a `Sampling` is stated, batches need no `draw`,
    and only the same arrays are noticed.  Shuffled data are read through `one_pass`.

    A model has one run at a time.  Another trainer, or `fit`, with other data or settings ends
    that of this trainer, which then refuses to go on.  While `fit` runs, there is no other.  What
    `apply` takes are gradients of this trainer, or what you made of them: those that another
    trainer released would not be in this model's ledger.

    Guarantee: weights that are neither what `apply` has left, nor were looked at before, are taken
    for changed by others, whether at a release, an update or a look: statements then say "prior
    spend unknown".  So are those that your own optimizer updates, as nobody knows what it had.

    Args:
        model: private, compiled with a private optimizer (a loss is not needed).
        sampler: the `PoissonSampler` that the batches come from, or a `Sampling` that describes
            how they are drawn.
        steps: number of steps planned, used to calibrate the noise.  What `forward` will ask of
            private teachers is not known yet: for such, compile with a noise multiplier.

    Example:

    >>> import keras, numpy as np, tf_lowrank_dp as tfdp
    >>> x, y = np.ones((64, 4), "float32"), np.zeros(64, "int32")
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> _ = tfdp.make_private(model)
    >>> model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0))
    >>> sampler = tfdp.PoissonSampler(x, y, batch_size=8, steps=3)
    >>> trainer = tfdp.PrivateTrainer(model, sampler, steps=3)
    >>> def forward(batch):
    ...     logits = model(batch["x"], training=True)
    ...     return keras.losses.sparse_categorical_crossentropy(
    ...         batch["y"], logits, from_logits=True), logits
    >>> for batch in sampler:
    ...     trainer.apply(trainer.gradients(forward, batch))
    >>> tfdp.privacy_spent(model, delta=1e-3) > 0
    True
    """

    def __init__(
        self, model: keras.Model, sampler: PoissonSampler | Sampling, steps: int | None = None
    ):
        refuse_distribution(data=sampler)
        refuse_custom_loop(state_of(model).workers)
        if isinstance(sampler, Sampling):  # such as that of a sampler, of whose draws none is asked
            sampling = sampler = dataclasses.replace(sampler, drawn_by="user")
        else:
            sampling = sampler.sampling
        if sampling.unit == "user":
            raise ValueError(
                "Expected a sampler of examples: a custom loop clips each row by itself. Received: "
                "one of users. Use model.fit(unit_ids=..., rows_per_unit=...), or one row a user."
            )
        steps = steps or getattr(sampler, "steps", None)
        if steps is None and private_optimizer(model).noise_multiplier is None:
            raise ValueError(
                "Expected steps, the number of steps that the budget shall last. Received: None "
                "with an endless sampler. Pass steps=... or compile with noise_multiplier=..."
            )
        private_optimizer(model).check_settings()
        validate_model(model)
        if (public := private_optimizer(model).public_data) is not None:
            warn_about_overlap(public.features, sampler)
        self._model = model
        self._reads, self._map = getattr(sampler, "reads", ()), map_of(sampler)
        self._forwards: dict[CodeType | int, JudgedForward] = {}  # the last of each code
        self._traces = 0
        seeded = getattr(sampler, "seeded", False)
        tell_what_is_written_beside(model)  # before what it trains is on record
        self._run = start_run(model, sampling, steps or 1, seeded=seeded, reads=self._reads)
        tell_what_is_written_beside(model)
        self._passes = self._run.passes
        self._draws = Draws(sampling, sampling is not sampler, seeded, self._passes.had)
        self._handed_out = HandedOut(self._run)

    @tf.autograph.experimental.do_not_convert
    def gradients(self, forward: Callable, batch: dict) -> list[tf.Tensor]:
        """Private gradients of the mean loss, one float32 tensor for each trainable variable.

        Args:
            forward: takes a dict like `batch` without `presence` and `draw`, calls the model, and
                returns one loss per example, `(b,)`, and anything else as nested tensors
                `(b, ...)`.  It is traced into a graph, also in eager mode, and first with random
                data: pass the same function at each step, as another one, or one whose Python
                numbers have changed, is tried and traced anew.  Seen is what it uses of closures,
                functions of yours, objects and its module; all else has to stay as it is, and is
                looked at again at the second release and, ever more rarely, later.
            batch: a logical batch, see `tf_lowrank_dp.sampling.batch`.

        Raises:
            PrivacyBudgetExceededError: the release would overspend.
            UnsupportedModelError: `forward` mixes examples, see `fit`, or training is distributed.
            RuntimeError: the model was trained by another trainer or by `fit` since; the batch had
                its release, or is of another sampler; shuffled data come without `one_pass`.
            ValueError: no epsilon could be stated, as `forward` reads what has none beside it.
        """
        refuse_distribution(data=batch)
        check_batch(batch)
        with self._run.lock:  # what is checked is released before another thread checks
            return self._gradients(forward, batch)

    def _gradients(self, forward: Callable, batch: dict) -> list[tf.Tensor]:
        self._check_present()
        if tf.executing_eagerly():
            self.check_budget()
        refuse_composites(batch)
        checks, given = [*self._passes.checks(), *self._draws.checks(batch)], batch
        if tf.executing_eagerly():
            refuse(checks)
        self._draws.refuse(batch)
        batch = tf.nest.map_structure(tf.convert_to_tensor, dict(batch))
        presence = batch.pop(PRESENCE)
        batch.pop(DRAW, None)
        judged = self._judged(forward, batch)
        count_what_is_behind(self._model, self._run, [batch, presence], self._handed_out)
        if not tf.executing_eagerly():
            checks += budget_in_graph(self._model)
            refused = refuse(checks)
            look(self._model)
            compared = SPENDING.compare_in_graph(self._model.weights)
            with tf.control_dependencies(refused):
                noted = self._draws.released(given, checks)
            with tf.control_dependencies([*refused, *noted, *compared]):
                gradients = self._run.engine.private_gradients(
                    with_outputs(forward),
                    batch,
                    presence,
                    watched=judged.judge.watched,
                    holds=all_hold(checks),
                )
            return self._handed_out.add(withheld(gradients, checks))
        judged.graph = judged.graph or LoopGraph(forward, self._run.engine, judged.judge)
        judged.graph.look_again(forward, batch)
        self._draws.take(given)
        gradients = judged.graph.gradients(batch, presence)
        look(self._model)  # at the values of the release, which may be put back before `apply`
        return self._handed_out.add(gradients)

    @tf.autograph.experimental.do_not_convert
    def apply(self, gradients: list[tf.Tensor]) -> None:
        """Adds weight regularisers and updates the weights with the inner optimizer.

        Args:
            gradients: what `gradients` has returned since the last call, or what you made of it,
                float32, one tensor for each trainable variable.

        Raises:
            RuntimeError: they are of another trainer, or there are none since the last call.
        """
        refuse_distribution()
        self._check_present()
        self._handed_out.refuse_others(gradients)
        checks = [self._handed_out.check()]
        refused = refuse(checks)
        look(self._model)
        if not tf.executing_eagerly():
            compared = SPENDING.compare_in_graph(values_of(self._model))
            with tf.control_dependencies([*refused, *compared]):
                gradients = withheld(gradients, checks)
        run, optimizer = self._run, private_optimizer(self._model)
        with tf.control_dependencies(gradients):  # no weight decay without a release
            given = apply_gradients(self._model, optimizer, run.engine.space, gradients, run.judged)
        if not tf.executing_eagerly():
            count_what_is_behind(self._model, self._run, given, self._handed_out, added=True)
        self._handed_out.applied()
        note = SPENDING.see if tf.executing_eagerly() else SPENDING.left_in_graph
        note(values_of(self._model))

    def check_budget(self, steps: int = 1) -> None:
        """Raises `PrivacyBudgetExceededError` if `steps` more releases would overspend.

        What they read is looked at, as a graph does not, and they are noted in the ledger's file.
        """
        self._check_present()
        look(self._model)
        check_budget(self._model, steps)

    def one_pass(self, batches: Iterable[dict]) -> Iterator[dict]:
        """Yields the batches of one pass over shuffled data.

        A pass counts as a whole from its first batch on, wherever it is left, and a pass ends when
        another one begins.  Each batch has one release, before the next is taken.

        Args:
            batches: logical batches, each example in at most one of them.

        Raises:
            ValueError: the batches are not shuffled, or there are more than those of a pass.
        """
        self._check_present()
        yield from self._passes.begin(batches)

    def _judged(self, forward: Callable, batch: Nested) -> JudgedForward:
        """Tries each `forward` on random data before its first release, as `fit` does."""
        code, run, state = Code(forward), self._run, state_of(self._model)
        found = self._forwards.get(code.key)
        if found is None or not found.code.is_that_of(code):
            sizes = units_of_parts(run.sampling, state.microbatch_size, 1, state.workers.count)
            method = run.engine.gradient_method
            judge = JudgedGraphs(self._model, with_outputs(forward), method, *sizes)
            before = whole_layers(self._model)
            judge.judge_apart(tf.nest.map_structure(spec_of, batch))
            if whole_layers(self._model) != before:
                state_of(self._model).run = None  # its space was made for other captures
                raise RuntimeError(
                    "Expected layers that are as the trainer found them. Received: "
                    f"'{self._model.name}', where a layer calls others in a loop or branch, as "
                    "forward shows now: it is taken as a whole. Make the PrivateTrainer again."
                )
            judge.count_for(lambda handles: count_reads(run, handles))
            judge.add_reads([*self._reads, *run.public_reads.values()])
            tell_what_is_written_beside(self._model)  # what forward reads is known from now on
            adapted = warn_about_adapted_layers(self._model, forward, self._map)
            note_adapted_layers(self._model, adapted)
            found = self._forwards[code.key] = JudgedForward(code, judge)
            self._traces += 1
            if self._traces == _MANY_TRACES:
                warnings.warn(_TRACED_ANEW, stacklevel=3)
        elif run.judged is not found.judge:
            forget_plan(self._model)  # which is that of another forward
        run.engine = dataclasses.replace(run.engine, part_rows=found.judge.units)
        run.judged = found.judge
        return found

    def _check_present(self) -> None:
        run = self._run
        if state_of(self._model).run is not run:
            raise RuntimeError(
                "Expected the trainer that began last. Received: one whose run has ended, as "
                f"'{self._model.name}' was trained otherwise since. Make a new PrivateTrainer."
            )
        if private_optimizer(self._model) is not run.optimizer:
            raise RuntimeError(
                "Expected the optimizer that the trainer was made with. Received: "
                f"'{self._model.name}' compiled anew, whose noise and target the trainer would not "
                "follow. Make a new PrivateTrainer."
            )
        refuse_other_variables(self._model, run)
