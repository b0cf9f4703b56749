"""Ways to break the package, and the tests that must notice.

Each mutation replaces text in a copy of the package.  `python -m tests.mutations.run` applies them
one by one, runs the tests named, and writes `docs/mutations.md`.
"""

import dataclasses

RULES = {
    0: "Noise is fresh: no draw is repeated, not in a fork either (the wall)",
    1: "The sampler and the accountant are one object",
    2: "One logical Poisson draw, then split it",
    3: "Divide by the expected batch size",
    4: "An empty draw is a step, a large one is not truncated",
    5: "A NaN or infinity costs its own example only",
    6: "Clip factors use an upper bound of the norm",
    7: "Norms, sums and noise are float32",
    8: "What mixes examples or keeps state is refused",
    9: "Every trainable variable is clipped and noised",
    10: "Private optimizers and private models need each other",
    11: "Zero `sample_weight` is not padding",
    12: "Metrics are not private and say so; presence is given to them",
    13: "Sigma is rounded up; epsilon never exceeds its target",
    14: "The neighbouring relation and the public number of examples are printed",
    15: "The ledger only grows, and follows the weights",
    16: "Random numbers inside a model are secret and used once",
    17: "Centres come from earlier releases; shares of the noise add up to one Gaussian",
    18: "A unit of several rows is drawn, clipped and counted once",
}


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One way to break a rule.

    Attributes:
        rule: number of the rule in `docs/design.md`; 0 for the noise itself.
        what: the broken behaviour, in words.
        edits: `(file, text, replacement)`; files are relative to the package, and each text occurs
            exactly once in its file.
        tests: node ids below `tests/`, of which at least one must fail.
    """

    rule: int
    what: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


def mutation(rule, what, file, old, new, *tests):
    return Mutation(rule, what, ((file, old, new),), tests)


HOSTILE = (
    "hostile/test_hostile_records.py::"
    "test_a_hostile_record_moves_the_release_by_at_most_the_sensitivity_and_nothing_else"
)
OTHERS_HIDDEN = "hostile/test_other_examples_hidden.py::"
WALL = (
    "hostile/test_wall.py::test_everything_released_has_the_stated_noise_once_and_of_its_own"
    "[dense dpsgd per layer reweight]"
)
INCLUSION = (
    "sampling/test_inclusion_in_training.py::"
    "test_every_example_counts_once_or_not_at_all_with_the_rate_that_is_accounted"
)
DISTRIBUTION, CLIPPING = "sampling/test_poisson_distribution.py", "mechanism/test_clipping.py"
DRAWS = "tracing/test_random_ops.py"
CHIEF, PARTS = "workers/test_chief.py", "workers/test_parts.py"
ENGINE, REFUSALS = "mechanism/test_engine.py", "training/test_refusals.py"
RUNNING = "training/test_running_fit.py"
DRAW = "yield own.start + own.step * poisson_draw(generator, len(own), self.sampling_rate)"
ADD_NOISE = "[tensor + tf.cast(deviation * next(normals), tensor.dtype) for tensor in block]"

MUTATIONS = [
    mutation(
        0, "noise is reused: every step draws under the same counter", "tracing/secret_stream.py",
        "tf.constant(1, tf.uint64)", "tf.constant(0, tf.uint64)",
        "mechanism/test_noise.py::test_every_step_of_a_graph_draws_anew",
        "hostile/test_wall.py::test_consecutive_steps_have_other_noise",
    ),
    mutation(
        0, "noise is reused: all variables of a step share it", "mechanism/noise.py",
        "[tf.reshape(t, s) for", "[tf.reshape(flat[: math.prod(s)], s) for",
        "mechanism/test_noise.py::test_noise_of_variables_and_of_steps_is_independent", WALL,
    ),
    mutation(
        16, "masks follow the seeds of the layers", "mechanism/engine.py",
        "with random_numbers_from(self.masks):", "if True:",
        f"{DRAWS}::test_masks_do_not_follow_from_any_seed_that_can_be_read",
    ),
    mutation(
        16, "the seeds of the layers count the rows drawn", "gradient_methods/recorded.py",
        "capturing(model), recorder, seeds_kept():", "capturing(model), recorder:",
        f"{DRAWS}::test_no_state_that_is_saved_tells_how_many_rows_were_drawn",
    ),
    Mutation(
        8, "sizes of the batch are not compared",
        (
            ("training/probe.py", "for other in (alone, longer):", "for other in ():"),
            ("training/probe.py", "_SIZES = (17, 257)", "_SIZES = ()"),
        ),
        ("training/test_probe.py::"
         "test_a_loss_that_knows_the_size_of_its_batch_is_refused_with_random_layers_too",),
    ),
    mutation(
        0, "a forked process keeps the key", "tracing/secret_stream.py",
        "os.register_at_fork(after_in_child=_rekey_all)", "pass",
        "mechanism/test_fork.py::test_a_forked_process_takes_a_key_of_its_own",
    ),
    mutation(
        1, "the sampler draws at twice the rate that it states", "sampling/poisson.py",
        DRAW, DRAW.replace("self.sampling_rate", "min(1.0, 2 * self.sampling_rate)"),
        f"{DISTRIBUTION}::test_samplers_draw_at_the_stated_rate", INCLUSION,
    ),
    mutation(
        1, "batches of a fixed size are accounted as Poisson draws", "sampling/draw.py",
        "size = generator.binomial(num_examples, sampling_rate)",
        "size = round(num_examples * sampling_rate)",
        f"{DISTRIBUTION}::test_sizes_have_the_binomial_distribution", INCLUSION,
    ),
    mutation(
        1, "shuffled batches of others are accounted as Poisson draws", "sampling/declared.py",
        "return Sampling.shuffle(batch_size, steps_per_pass, num_examples)",
        "return Sampling.poisson(batch_size * steps_per_pass, batch_size)",
        "sampling/test_declared.py::test_shuffle_counts_passes_of_the_datasets_length",
    ),
    mutation(
        1, "a sampling rate of half of what the numbers say is accepted", "accounting/sampling.py",
        "- self.batch_size) > 0.5", "- self.batch_size) > 1",
        "accounting/test_sampling.py::test_errors_say_expected_received_and_the_remedy",
    ),
    mutation(
        1, "another run of a model may begin while fit runs", "training/running_fit.py",
        "    if model in _FITS:\n", "    if False:\n",
        f"{RUNNING}::test_another_run_in_a_callback_is_refused_and_the_outer_one_counts_at_its_"
        "rate[inner_fit]",
    ),
    mutation(
        1, "a model that a callback has exchanged goes on in fit", "training/running_fit.py",
        "    if not (\n", "    if False and not (\n",
        f"{RUNNING}::test_no_step_is_taken_after_a_callback_has_exchanged_something"
        "[another_optimizer]",
    ),
    mutation(
        1, "a train function runs on any data", "training/running_fit.py",
        "if fit is None or fit.run is not run or fit.thread != threading.get_ident():",
        "if fit is not None and fit.run is not run:",
        f"{RUNNING}::test_steps_by_hand_on_other_data_are_refused_while_fit_runs"
        "[on_train_batch_end-by_train_function]",
    ),
    mutation(
        2, "a step is two independent draws of half the rate", "sampling/poisson.py",
        DRAW,
        "yield np.concatenate([poisson_draw(generator, self._num_examples, "
        "self.sampling_rate / 2) for _ in range(2)])",
        INCLUSION,
    ),
    mutation(
        2, "every microbatch is a release with noise of its own", "mechanism/engine.py",
        "sums = self.mechanism.clipped_sums(blocks, presence)",
        "sums = self.mechanism.release("
        "self.mechanism.clipped_sums(blocks, presence), self.noise)",
        f"{ENGINE}::test_a_logical_batch_takes_one_noise_draw_and_one_step_whatever_the_microbatch"
        "_size",
        WALL,
    ),
    mutation(
        2, "every replica of a strategy draws and adds noise", "training/distribution.py",
        "    if tf.distribute.has_strategy():\n", "    if False:\n",
        "training/test_distribution.py::test_what_a_strategy_has_distributed_is_refused",
    ),
    mutation(
        2, "no worker adds noise", "mechanism/gaussian.py",
        "workers.added(self._with_noise(sums, noise), sources=1", "workers.added(sums, sources=1",
        f"{CHIEF}::test_the_chief_alone_adds_noise_and_says_so",
    ),
    mutation(
        2, "every worker adds noise", "mechanism/gaussian.py",
        "released = workers.added(sums, sources=0",
        "released = workers.added(self._with_noise(sums, noise), sources=0",
        f"{CHIEF}::test_the_chief_alone_adds_noise_and_says_so",
    ),
    mutation(
        2, "sums of workers are used whatever noise is in them", "workers/connected.py",
        "[1.0, float(self.count)],", "found,",
        f"{CHIEF}::test_sums_with_other_than_one_source_of_noise_are_not_used",
    ),
    mutation(
        2, "each worker draws at the rate of its own rows", "sampling/poisson.py",
        DRAW, DRAW.replace("self.sampling_rate", "min(1.0, own.step * self.sampling_rate)"),
        f"{PARTS}::test_each_row_is_in_exactly_one_part_and_drawn_at_the_global_rate",
    ),
    mutation(
        2, "each worker draws from all rows", "sampling/parts.py",
        "range(index, sampler.num_examples, count)", "range(sampler.num_examples)",
        f"{PARTS}::test_each_row_is_in_exactly_one_part_and_drawn_at_the_global_rate",
    ),
    mutation(
        2, "each worker draws from its shard at the rate of its own rows", "sampling/parts.py",
        "other._draw_from(sum(sizes), batch_size)", "other._draw_from(sizes[index], batch_size)",
        f"{PARTS}::test_rows_of_shards_are_drawn_at_the_rate_of_all_rows_and_accounted_as_one_draw",
    ),
    mutation(
        2, "each worker has carriers of its own", "mechanism/engine.py",
        "self.workers.of_chief(self.space.refresh())", "self.space.refresh()",
        "workers/test_traffic.py::test_carriers_come_from_the_chief",
    ),
    mutation(
        2, "workers may have other rows, or another order of them", "training/agreement.py",
        "digest = data.rows_digest(key, ordered=shared)", "digest = key[:0].hex()",
        f"{CHIEF}::test_rows_in_another_order_are_told",
    ),
    mutation(
        15, "a step counts once for each worker", "training/start_run.py",
        "        entry_id=chosen.entry_id,\n", "",
        f"{CHIEF}::test_noise_and_entry_of_a_run_are_the_chiefs",
    ),
    mutation(
        15, "what other workers know to be spent is not added", "training/agreement.py",
        "        if union != held:\n", "        if False:\n",
        f"{CHIEF}::test_what_was_spent_by_others_counts",
    ),
    mutation(
        3, "the sum is divided by the size drawn", "mechanism/engine.py",
        "t / self.expected_batch_size", "t / tf.maximum(tf.reduce_sum(presence), 1.0)",
        f"{ENGINE}::test_the_sum_is_divided_by_the_expected_size_whatever_was_drawn",
    ),
    mutation(
        3, "the noise is divided by the batch size, once too often", "mechanism/gaussian.py",
        ADD_NOISE, ADD_NOISE.replace("deviation *", "deviation / 8.0 *"),
        "mechanism/test_noise.py::"
        "test_variance_of_what_is_added_is_the_square_of_multiplier_times_clip",
        WALL,
    ),
    mutation(
        4, "empty draws are skipped", "sampling/poisson.py",
        f"            {DRAW}",
        "            indices = poisson_draw(generator, self._num_examples, self.sampling_rate)\n"
        "            if len(indices):\n"
        "                yield indices",
        "sampling/test_poisson.py::test_an_empty_draw_is_one_granule_of_absent_rows",
    ),
    mutation(
        4, "draws that are larger than expected are cut", "sampling/poisson.py",
        DRAW, DRAW + "[: self._batch_size]",
        f"{DISTRIBUTION}::test_samplers_draw_at_the_stated_rate",
    ),
    mutation(
        5, "non-finite norms are not noticed", "mechanism/clipping.py",
        "usable = tf.math.is_finite(bound) & (presence > 0.0)", "usable = presence > 0.0",
        f"{CLIPPING}::test_a_hostile_record_gets_factor_0_and_costs_only_itself",
        f"{HOSTILE}[dense dpsgd]",
    ),
    mutation(
        5, "a factor of 0 leaves NaN a NaN", "per_example/gradient.py",
        "return tf.math.multiply_no_nan(tensor, _in_front(weights, tensor.shape.rank))",
        "return tensor * _in_front(weights, tensor.shape.rank)",
        f"{CLIPPING}::test_absent_rows_contribute_nothing_whatever_they_hold",
        f"{HOSTILE}[dense dpsgd]",
    ),
    mutation(
        6, "no clipping", "mechanism/clipping.py",
        "factors = tf.minimum(1.0, tf.math.divide_no_nan(l2_norm_clip, bound))",
        "factors = tf.ones_like(bound)",
        f"{CLIPPING}::test_factors_are_the_smaller_of_1_and_clip_over_norm",
        f"{HOSTILE}[dense dpsgd]",
    ),
    mutation(
        6, "norms are taken as computed, without a bound of the rounding", "mechanism/clipping.py",
        "gradient.squared_norm_bounds()", "gradient.squared_norms()",
        "mechanism/test_sensitivity.py::test_positions_that_cancel_in_float32_are_still_clipped",
        f"{HOSTILE}[sequence dpsgd]",
    ),
    mutation(
        6, "any gradient_scale is taken", "optimizers/checks.py",
        "_MOST_SCALE = 1e6", "_MOST_SCALE = 1e300",
        "release/test_noise_and_scale.py::test_a_wrong_scale_is_refused",
    ),
    mutation(
        6, "per-layer clipping at the whole clip, accounted as a flat one", "mechanism/gaussian.py",
        "clip_factors(block, presence, clip, stability)",
        "clip_factors(block, presence, self.l2_norm_clip, stability)",
        f"{ENGINE}::test_per_layer_clipping_bounds_each_layer_and_the_root_of_their_squares",
        f"{HOSTILE}[attention dpsgd per layer]",
    ),
    Mutation(
        6, "ReweightGP puts the factors on the losses, where bfloat16 rounds them anew",
        (
            (
                "gradient_methods/recorded.py",
                "total = tf.reduce_sum(tf.math.multiply_no_nan(losses, present))",
                "total = tf.reduce_sum(tf.math.multiply_no_nan(losses, weights))",
            ),
            (
                "gradient_methods/recorded.py",
                "return self._second(weights).weighted_sum(weights)",
                "return self._second(weights).weighted_sum(tf.cast(weights != 0.0, tf.float32))",
            ),
        ),
        (f"{HOSTILE}[sequence dpsgd per layer reweight bfloat]",),
    ),
    mutation(
        6, "GEP's residual has no guard against cancelling", "release/coefficient_basis.py",
        " + guard * squares", "",
        "mechanism/test_gep_sensitivity.py::"
        "test_records_nearly_inside_the_subspace_never_release_more_than_the_clip",
    ),
    mutation(
        6, "GEP's parts may be rounding only", "release/long_vectors.py",
        " + LEAST_RATIO**2 * self._squares", "",
        "mechanism/test_gep_rounding.py::"
        "test_what_a_record_releases_hardly_depends_on_the_layout_of_its_batch",
    ),
    mutation(
        7, "clipped sums are formed in bfloat16", "per_example/outer_product.py",
        "d = tf.reshape(d, [-1, self._d.shape[2]])",
        "d = tf.cast(tf.cast(tf.reshape(d, [-1, self._d.shape[2]]), tf.bfloat16), tf.float32)",
        f"{HOSTILE}[sequence dpsgd]",
    ),
    mutation(
        7, "tensor cores round what norms and sums multiply", "per_example/arithmetic.py",
        "return tensor if arithmetic() == FLOAT32 else _cut(tensor, kept)", "return tensor",
        "hostile/test_tensor_cores.py::test_a_pair_is_cut_once_for_norms_and_sums",
    ),
    mutation(
        7, "tensor cores round the clipped pair beyond the clip", "per_example/outer_product.py",
        " + operand * a", "",
        "hostile/test_tensor_cores.py::test_what_the_sum_rounds_up_once_more_is_within_the_clip",
    ),
    mutation(
        7, "TensorFlow may rewrite products to fewer bits", "training/start_run.py",
        "    refuse_rewritten_products()\n", "",
        "hostile/test_wall.py::test_products_in_fewer_bits_are_refused[option]",
    ),
    mutation(
        7, "reweight trusts kernels that do not repeat", "gradient_methods/recorded.py",
        "if not kernels_repeat():", "if False:",
        "hostile/test_tensor_cores.py::"
        "test_reweight_is_refused_where_kernels_need_not_repeat_what_they_computed",
    ),
    mutation(
        8, "losses that depend on other examples are accepted", "training/compared_losses.py",
        "if not near and", "if False and",
        f"{REFUSALS}::test_a_layer_that_mixes_examples_is_found_and_refused",
    ),
    mutation(
        8, "a step that is traced anew is trained unseen", "training/judged_graphs.py",
        "        if parts[0].digest not in self._digests:\n",
        "        self._digests.add(parts[0].digest)\n        if False:\n",
        "training/test_judged_graphs.py::"
        "test_a_term_over_the_batch_that_a_callback_switches_on_is_refused",
    ),
    mutation(
        8, "what the backward pass writes is accepted", "training/judged_graphs.py",
        "if part.writes:", "if not part.digest:",
        "training/test_judged_graphs.py::test_what_the_backward_pass_writes_is_refused",
    ),
    mutation(
        12, "what metrics keep of examples comes back into a step", "training/judged_graphs.py",
        "        if found:\n            paths", "        if not self._digests:\n            paths",
        "training/test_metrics_are_a_dead_end.py::"
        "test_what_metrics_write_to_is_neither_read_nor_kept",
    ),
    mutation(
        16, "a recomputed layer draws a second mask", "tracing/random_ops.py",
        "with operations_seen_by(replace), nothing_recomputed():",
        "with operations_seen_by(replace):",
        "training/test_judged_graphs.py::"
        "test_a_mask_is_that_of_the_output_in_the_gradient_of_what_would_be_recomputed",
    ),
    mutation(
        15, "a pass that was left early is not counted as a whole", "training/passes.py",
        "tf.maximum(steps + -steps % length, self._begun * length)", "steps",
        "training/test_trainer.py::test_a_pass_over_shuffled_data_counts_as_it_is_begun",
    ),
    mutation(
        15, "passes that are begun before another has a release do not count",
        "training/passes.py", "self._begun * length)", "0 * length)",
        "training/test_trainer.py::"
        "test_passes_that_are_walked_side_by_side_count_as_those_begun",
    ),
    mutation(
        15, "what a step reads of other models does not count", "training/judged_graphs.py",
        "            self._counts(found.values())", "            pass",
        "training/test_spent_follows_variables.py::"
        "test_a_custom_loop_that_asks_a_private_teacher_has_spent_what_that_has",
    ),
    mutation(
        15, "what a graph has read since it was asked does not count", "spending/traces.py",
        "                    self.attach(alive(run.reading.updated), records)", "",
        "training/test_spent_by_what_is_read.py::"
        "test_a_head_depends_on_what_others_spent_on_a_shared_encoder_between_its_steps",
    ),
    mutation(
        15, "what students learn of teachers of their teachers does not count",
        "spending/readers.py", "for other in giving:", "for other in set():",
        "training/test_spent_by_what_is_read.py::"
        "test_who_learns_from_a_student_has_spent_what_its_teacher_spent_between_the_steps",
    ),
    mutation(
        15, "what a student has learnt by now is not given on", "spending/traces.py",
        "reader.reading.give_on(run, records)", "pass",
        "training/test_spent_by_what_is_read.py::"
        "test_who_learns_from_a_student_has_spent_what_its_teacher_spent_between_the_steps",
    ),
    mutation(
        15, "a refused load takes away what was learnt before it", "spending/traces.py",
        " | {each for _, each in later.get(run, ())}", "",
        "spending/test_owner.py::"
        "test_what_was_learnt_before_a_refused_load_stays_although_it_brought_the_same",
    ),
    mutation(
        15, "Keras writes HDF5 without the ledger", "optimizers/base.py",
        "        ledger_in_file.refuse_hdf5(self)\n", "",
        "training/test_ledger.py::"
        "test_such_a_format_is_refused_by_keras_own_function_and_the_next_file_holds_the_ledger",
    ),
    mutation(
        15, "a loaded value that ordinary training changes at once is taken for the file's",
        "spending/owner.py", "record in records or ", "",
        "spending/test_owner.py::"
        "test_what_changes_after_a_file_has_brought_its_value_is_noticed",
    ),
    mutation(
        15, "gradients of another trainer are applied", "training/trainer.py",
        "        self._handed_out.refuse_others(gradients)\n", "",
        "training/test_handed_out.py::"
        "test_gradients_of_another_trainer_are_refused_and_change_nothing",
    ),
    mutation(
        15, "several views of a batch of a pass count as one", "training/passes.py",
        "[(self._steps < self._allowed, _OUTSIDE)]", "[]",
        "training/test_handed_out.py::test_another_view_of_a_batch_of_a_pass_is_refused[False]",
        "training/test_handed_out.py::test_another_view_of_a_batch_of_a_pass_is_refused[True]",
    ),
    mutation(
        15, "a graph takes steps that the ledger's file does not hold", "training/budget.py",
        "if file_of(model) is not None:", "if False:",
        "training/test_handed_out.py::"
        "test_a_graph_takes_no_step_that_the_ledgers_file_does_not_hold",
    ),
    mutation(
        1, "what a graph refuses is computed all the same", "training/trainer.py",
        "tf.control_dependencies([*refused, *noted, *compared])",
        "tf.control_dependencies([*noted, *compared])",
        "training/test_handed_out.py::test_another_view_of_a_batch_of_a_pass_is_refused[True]",
    ),
    mutation(
        1, "an iterator begins a pass within another", "sampling/iterators.py",
        "        if self._taken % steps_per_pass:", "        if False:",
        "training/test_batched_data.py::"
        "test_an_iterator_that_was_left_within_a_pass_begins_no_other",
    ),
    mutation(
        4, "padding of a sampler's batches is trained on", "sampling/upstream.py",
        "if any(each in _SAMPLED for each in data_sets_of(dataset)):", "if False:",
        "training/test_batched_data.py::"
        "test_batches_of_a_sampler_without_their_presence_are_refused",
    ),
    mutation(
        15, "the file of a model that is compiled anew holds an empty ledger",
        "optimizers/ledger_in_file.py",
        "in models_compiled_with(optimizer):\n        link", "in ():\n        link",
        "training/test_spent_follows_variables.py::"
        "test_a_loaded_model_that_is_compiled_anew_keeps_its_ledger_in_the_next_file",
    ),
    mutation(
        15, "layers that are unfrozen while fit runs are trained", "training/train_step.py",
        "    refuse_other_variables(model, run)\n", "",
        "training/test_running_fit.py::"
        "test_a_layer_that_a_callback_unfreezes_is_not_trained[True]",
    ),
    mutation(
        8, "the probe tries no missing values", "training/probe.py",
        "[*beside, *with_missing(*pair)]", "beside",
        "training/test_values_and_sizes.py::"
        "test_missing_values_that_become_the_mean_of_the_batch_are_refused[of_mask-nan]",
    ),
    mutation(
        8, "random data on which no loss is a number say nothing", "training/probe.py",
        "if not (compared or proven):", "if False:",
        "training/test_probe.py::"
        "test_losses_that_are_no_numbers_on_any_random_data_are_refused",
    ),
    mutation(
        8, "conditions that seldom hold are not tried", "training/probe.py",
        "element_spec, LowSource())", "element_spec, FixedSource())",
        "training/test_rare_branches.py::"
        "test_what_joins_examples_seldom_or_a_little_is_refused[once in a hundred steps]",
    ),
    mutation(
        8, "nothing is compared beside large numbers", "training/probe.py",
        "_LARGE = (1e3, 1e6)", "_LARGE = ()",
        "training/test_rare_branches.py::"
        "test_what_joins_examples_seldom_or_a_little_is_refused[a millionth, unknown]",
    ),
    mutation(
        8, "another fit does not look again where fixed values have changed",
        "training/judged_graphs.py", "names, digests(fixed)", "names, None",
        "training/test_judged_graphs.py::"
        "test_another_fit_looks_again_only_if_something_has_changed",
    ),
    Mutation(
        8, "another forward of a trainer is not tried",
        (
            (
                "training/trainer.py", "found = self._forwards.get(code.key)",
                "found = next(iter(self._forwards.values()), None)",
            ),
            (
                "training/trainer.py", "if found is None or not found.code.is_that_of(code):",
                "if found is None:",
            ),
        ),
        ("training/test_trainer.py::test_another_forward_is_probed_before_its_first_release",),
    ),
    mutation(
        8, "variables that a callback may raise keep their values in the probe",
        "training/raised_gates.py",
        "for key, value in values.items()}", "for key, value in ()}",
        "training/test_raised_gates.py::"
        "test_a_term_that_joins_examples_behind_a_closed_gate_is_refused[of_mask]",
    ),
    mutation(
        8, "rows of different examples are added up as if they were of one",
        "gradient_methods/trial.py",
        "if labels[id(root.tensor)] == Rows(0, (root.tensor.shape[0] or 0) // size)",
        "if (root.tensor.shape[0] or 1) % size == 0",
        "contracts/test_joined_axes.py::"
        "test_rows_of_different_examples_next_to_each_other_are_refused",
    ),
    mutation(
        8, "counters and single variables are raised a little only", "training/raised_gates.py",
        "later if switches or singles", "[*later][:1] if switches",
        "training/test_raised_gates.py::"
        "test_a_gate_that_opens_late_is_seen_as_well[a large scalar]",
    ),
    mutation(
        1, "a draw that comes out of a cache again is a draw of its own", "training/draws.py",
        "(newer, _USED),", "",
        "training/test_draws.py::test_draws_that_come_out_of_a_cache_again_are_refused[eager]",
    ),
    mutation(
        1, "draws at another rate than was stated are released", "training/draws.py",
        "((of[0] == examples) & (of[1] == size), _OTHER.format(self._sampling)),", "",
        "training/test_draws.py::"
        "test_draws_at_another_rate_than_the_trainer_was_told_are_refused[examples-eager]",
    ),
    mutation(
        1, "a batch of a sampler may hold other rows than were drawn", "training/draws.py",
        "(rows == present, _ROWS),", "",
        "training/test_draws.py::"
        "test_a_batch_of_other_rows_than_were_drawn_is_refused[more-eager]",
    ),
    mutation(
        1, "inputs of a batch may have other rows than its presence", "training/draws.py",
        "(tf.shape(leaf, tf.int64)[0] == present, _UNALIKE)", "(tf.constant(True), _UNALIKE)",
        "training/test_draws.py::"
        "test_a_batch_whose_inputs_have_other_rows_than_its_presence_is_refused"
        "[sampler-views-eager]",
    ),
    mutation(
        1, "arrays with a new presence are a new draw", "training/draws.py",
        " or (had and all(had)):", ":",
        "training/test_draws.py::test_arrays_with_new_presence_are_the_same_draw",
    ),
    mutation(
        1, "arrays of a batch of a data set may have other rows than each other",
        "sampling/batched_sources.py",
        "for rows in others]", "for rows in others[:0]]",
        "sampling/test_declared.py::"
        "test_arrays_of_a_batch_with_other_rows_than_each_other_end_the_pass[shuffle-views]",
    ),
    mutation(
        1, "records of a source are not copied", "sampling/records.py",
        "return array.astype(", "return (lambda dtype: array)(",
        "sampling/test_one_buffer.py::test_records_may_be_read_into_one_array[as it is-1]",
    ),
    mutation(
        1, "threads read records at once", "sampling/records.py",
        "contextlib.nullcontext() if self.thread_safe else self._turns.lock",
        "contextlib.nullcontext()",
        "sampling/test_one_buffer.py::"
        "test_records_of_a_source_that_keeps_state_while_it_reads_are_not_mixed[OneDict]",
    ),
    mutation(
        1, "batches that are read ahead are not copied", "sampling/iterators.py",
        "self._unused.extend(map(own_copy, ahead))", "self._unused.extend(ahead)",
        "sampling/test_one_buffer.py::test_batches_may_be_read_into_one_array[generator]",
    ),
    mutation(
        1, "a generator over a sampler leaves presence out", "sampling/upstream.py",
        "if any(_GIVEN.get(id(leaf)) is leaf for leaf in leaves):", "if False:",
        "sampling/test_declared.py::"
        "test_batches_of_a_sampler_without_presence_are_refused_from_python_too[list]",
    ),
    mutation(
        1, "rows are padded to the longest of their batch before a map", "sampling/one_shape.py",
        "    if kind_of(dataset) in _PADDING and not all(", "    if False and not all(",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused[resized]",
    ),
    mutation(
        1, "ragged batches become dense ones of any length", "sampling/one_shape.py",
        "if gives_batches or makes_batches or _holds_batches(dataset):", "if False:",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused[ragged, then a mean]",
    ),
    mutation(
        1, "crossed columns are taken for ones of a stated length", "sampling/one_shape.py",
        'shape.op.get_attr("N") == 0 and all(', "True or all(",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused"
        "[crossed with as many as a row has]",
    ),
    mutation(
        1, "batches that no stage of .batch() has made are not looked into",
        "sampling/one_shape.py", "if gives_batches or makes_batches", "if makes_batches",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused[batches of a generator]",
    ),
    mutation(
        1, "sparse batches become as wide as their longest row", "sampling/batched_sources.py",
        'refuse_unknown_shapes(sparse, "sparse batches")', "pass",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused[made dense for the model]",
    ),
    mutation(
        1, "what is ready first comes first, by an option", "sampling/declared.py",
        "        batches = in_order(batches)\n", "",
        "sampling/test_declared.py::test_options_that_give_first_what_is_ready_first_are_set_back",
    ),
    mutation(
        1, "what is ready first comes first, by a stage", "sampling/stages.py",
        "        if is_out_of_order(each) or any(", "        if any(",
        "sampling/test_declared.py::"
        "test_stages_that_give_first_what_is_ready_first_are_refused[shuffle-interleave]",
    ),
    mutation(
        1, "draws that are kept are taken for new ones", "sampling/stages.py",
        "    if cached and not all_rows:", "    if False:",
        "sampling/test_declared.py::test_draws_that_are_kept_are_no_new_ones[cache]",
    ),
    mutation(
        1, "rows come twice in a draw", "sampling/stages.py",
        "        how = repetition(inputs_of(dataset)[0])", "        how = \"\"",
        "sampling/test_declared.py::test_rows_that_come_twice_in_a_draw_are_refused[1.0-augmented]",
    ),
    mutation(
        1, "the functions of stages may filter", "sampling/stages.py",
        "    if kind_of(dataset) in (*APART, \"Load\"):", "    if False:",
        "sampling/test_declared.py::"
        "test_batches_that_an_example_chooses_for_others_are_refused[filter of each file-shuffle]",
    ),
    mutation(
        1, "an element may decide how often it is repeated", "sampling/stages.py",
        "if decides and not (", "if False and not (",
        "sampling/test_declared.py::"
        "test_batches_that_an_example_chooses_for_others_are_refused[oversampled-shuffle]",
    ),
    mutation(
        1, "a function may give one data set again and again", "sampling/repeated_rows.py",
        "if kind in (*APART, \"Map\", \"ParallelMap\") and (how := rows_again(dataset)):",
        "if how := \"\":",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not[one for each of two]",
    ),
    mutation(
        1, "a share for each element may be the same again", "sampling/function_rows.py",
        'return kind_of(outer) == "Range" and any(index is tensor for tensor in given)',
        "return True",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not[shares again]",
    ),
    mutation(
        1, "a function may join a data set with itself", "sampling/function_rows.py",
        "if any(_joins_itself(op) for kind, op in inside if kind in JOINS):", "if False:",
        "sampling/test_repeated_rows.py::"
        "test_parts_with_common_rows_are_not[one behind itself in a function]",
    ),
    mutation(
        1, "what is counted in a function is no row", "sampling/function_rows.py",
        "if (counted and beside) or _is_share(", "if counted or _is_share(",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not"
        "[counted in another order for each]",
    ),
    mutation(
        1, "windows that overlap are rows inside of functions", "sampling/function_rows.py",
        'kind == "Window" and comes_in_several(*op.inputs[1:4])]', "False]",
        "sampling/test_repeated_rows.py::"
        "test_parts_with_common_rows_are_not[rows of windows in a function]",
    ),
    mutation(
        1, "data sets that functions capture may repeat rows", "sampling/repeated_rows.py",
        "[*found, *(repetition(each, of_pairs) for each in held)]", "found",
        "sampling/test_repeated_rows.py::"
        "test_parts_with_common_rows_are_not[shares of what is repeated]",
    ),
    mutation(
        1, "a side of pairs may repeat its rows", "sampling/repeated_rows.py",
        'found = ["" if one_element else how for how, one_element in pairs]', "found = []",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not[a side repeated]",
    ),
    mutation(
        1, "shuffles in functions change no order", "sampling/repeated_rows.py",
        'any(kind.startswith("Shuffle") for kind, _ in stages_inside(dataset))', "False",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not"
        "[halves of files in another order]",
    ),
    mutation(
        1, "overlapping windows may be taken apart", "sampling/repeated_rows.py",
        "return depth is not None and depth < int(rows)", "return False",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not[windows side by side]",
    ),
    mutation(
        1, "what apply joins is not looked at", "_tf_data.py",
        "if behind is None else [dataset._input_dataset, behind]", "",
        "sampling/test_repeated_rows.py::"
        "test_parts_with_common_rows_are_not[behind itself by apply]",
    ),
    mutation(
        1, "data sets that functions capture may filter", "sampling/stages.py",
        "for each in read_by(dataset):",
        "for each in inputs_of(dataset):",
        "sampling/test_declared.py::test_batches_that_an_example_chooses_for_others_are_refused"
        "[filter of what each function reads-shuffle]",
    ),
    mutation(
        1, "data sets may come without their stages", "sampling/stages.py",
        "if None in held or any(kind_of(s) in _HIDDEN and not made_of_numbers(s) for s in shown):",
        "if False:",
        "sampling/test_declared.py::"
        "test_data_sets_that_come_without_their_stages_are_refused[a fold-shuffle]",
    ),
    mutation(
        1, "files of a data set of names hide what it is made of", "_tf_data.py",
        "(sources if reader is None else [reader])", "sources",
        "sampling/test_declared.py::"
        "test_rows_that_come_again_within_a_pass_are_refused_where_the_pipeline_tells"
        "[files whose names come again]",
    ),
    mutation(
        1, "shares may be of what is in another order for each", "sampling/repeated_rows.py",
        "if shares_inside(dataset) and any(map(_shuffles, held)):", "if False:",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not"
        "[shares of what is in another order]",
    ),
    mutation(
        1, "what functions read is not compared with other parts", "sampling/repeated_rows.py",
        "return [*joined(dataset), *filter(None, held_by(dataset))]", "return joined(dataset)",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not"
        "[shares, and all of it again]",
    ),
    mutation(
        1, "padding in what functions read", "sampling/one_shape.py",
        "for each in filter(None, held_by(dataset)):", "for each in ():",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused[in shares]",
    ),
    mutation(
        1, "rows of a sampler's changed batches are not counted", "sampling/upstream.py",
        "if _DRAWN.batches > before[0] and", "if False and",
        "training/test_batched_data.py::"
        "test_batches_made_of_a_samplers_hold_none_of_its_padding[OfSampler]",
    ),
    mutation(
        1, "entries of a sparse matrix are in columns that are none", "sampling/rows.py",
        "        return _checked(sparse.csr_array(data), name)",
        "        return sparse.csr_array(data)",
        "sampling/test_rows.py::"
        "test_entries_of_columns_that_a_sparse_matrix_does_not_have_are_refused[-1]",
    ),
    mutation(
        1, "a function of an iterator begins a pass within another", "sampling/iterators.py",
        "        _STARTED[source][0].refuse_within_pass(steps_per_pass)", "        pass",
        "training/test_batched_data.py::"
        "test_a_function_of_an_iterator_that_was_left_within_a_pass_begins_no_other",
    ),
    mutation(
        1, "what was looked at of a PyDataset is lost", "sampling/batched_sources.py",
        "    unused = list(ahead)", "    unused: list = []",
        "training/test_batched_data.py::"
        "test_what_was_looked_at_of_a_py_dataset_is_the_beginning_of_its_first_pass",
    ),
    mutation(
        1, "records are read in another order of bytes", "sampling/rows.py",
        "    native = dtype.newbyteorder(\"=\")", "    native = dtype",
        "sampling/test_records.py::test_bytes_of_another_order_are_the_same_numbers[>f4]",
    ),
    mutation(
        1, "maps keep something of an example for others", "sampling/stages.py",
        "if _WRITES.search(op.type) and not _is_seed(op.inputs[-1]):", "if False:",
        "sampling/test_declared.py::test_maps_that_keep_something_of_an_example_for_others_are_"
        "refused[plain-shuffle]",
    ),
    mutation(
        1, "functions that a map calls are not looked into", "_tf_data.py",
        "[*graphs, *called]", "graphs",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_"
        "refused[ragged in a function, then a mean]",
    ),
    mutation(
        1, "numbers of a list are parts of a record", "sampling/records.py",
        "        if _is_one_array(part) or not keras.tree.is_nested(part):",
        "        if not keras.tree.is_nested(part):",
        "sampling/test_records.py::"
        "test_lists_of_numbers_are_arrays_however_long_they_are",
    ),
    mutation(
        12, "data read what metrics write to", "training/judged_graphs.py",
        "        self._read |= found\n",
        "",
        "training/test_metrics_are_a_dead_end.py::"
        "test_what_metrics_write_to_is_not_read_by_the_data",
    ),
    mutation(
        15, "who asks inside of post_processing is told what was spent before", "spending/owner.py",
        "        self.tellers.ask()\n",
        "",
        "training/test_spent_values.py::"
        "test_what_is_asked_or_saved_inside_of_post_processing_is_what_was_spent_until_then",
    ),
    mutation(
        1, "a draw of another process is a draw of its own", "training/draws.py",
        "(process == this_process(), _ELSEWHERE),", "",
        "training/test_draws.py::test_a_draw_of_another_process_is_refused[eager]",
    ),
    mutation(
        1, "a batch that is refused makes room for the next where XLA compiles",
        "training/draws.py",
        "kept = tf.where(all_hold(checks), draw,", "kept = tf.where(True, draw,",
        "training/test_draws.py::"
        "test_where_xla_drops_errors_no_refused_batch_makes_room_for_the_next",
    ),
    mutation(
        1, "draws of a seed are released without a word", "training/draws.py",
        "((seeded == 0) | self._seeded, _SEEDED),", "",
        "training/test_draws.py::"
        "test_draws_of_a_seeded_sampler_are_refused_by_who_was_not_told",
    ),
    mutation(
        0, "tapes see behind what is released", "mechanism/gaussian.py",
        "tf.nest.map_structure(tf.stop_gradient, released)", "released",
        "training/test_trainer.py::test_no_tape_sees_behind_what_is_released",
    ),
    mutation(
        1, "steps that XLA compiles go on where others fail", "training/trainer.py",
        "self._handed_out.add(withheld(gradients, checks))", "gradients",
        "training/test_draws.py::"
        "test_draws_that_come_out_of_a_cache_again_are_refused[compiled]",
    ),
    mutation(
        8, "the size of a batch is tried for small ones only", "training/probe.py",
        "    if sizes:", "    if False:",
        "training/test_values_and_sizes.py::"
        "test_a_loss_that_knows_the_size_of_an_ordinary_batch_is_refused",
    ),
    mutation(
        16, "parts of a step have shared random numbers of their own", "tracing/axis_walk.py",
        "        if op.type in DRAWS:\n", "        if False:\n",
        "training/test_shared_draws.py::"
        "test_each_example_has_numbers_of_its_own_where_rows_would_share_them[{}-coin]",
    ),
    mutation(
        16, "draws of a model repeat one another", "tracing/secret_stream.py",
        "tf.stack([tf.constant(0, tf.uint64), self.next_draw()])",
        "tf.zeros([2], tf.uint64)",
        f"{DRAWS}::test_no_number_is_drawn_twice_whatever_the_model_asks_for",
    ),
    mutation(
        16, "workers with a seed have the same masks", "training/start_run.py",
        'f"masks {workers.index}" if workers.index else "masks"', '"masks"',
        "workers/test_behaviours.py::test_masks_of_workers_are_independent_of_each_other",
    ),
    mutation(
        8, "what is not proven is differentiated with all examples at once",
        "training/chosen_method.py", "    if proof.proven:\n", "    if tried:\n",
        "training/test_one_at_a_time.py::"
        "test_one_record_replaced_moves_two_clips_at_most[running_mean]",
    ),
    mutation(
        8, "the model sees how many examples were drawn", "mechanism/engine.py",
        "if self.part_rows is None:", "if True:",
        "training/test_one_compiled_size.py::"
        "test_the_model_sees_one_size_whatever_is_drawn[False-None]",
    ),
    mutation(
        8, "what differs from place to place in a batch counts as the examples' own",
        "tracing/axis_rules.py",
        "if any(o.differs_by_row(index) for index in {*range(len(o.labels))} - filters):",
        "if False:",
        "training/test_one_at_a_time.py::"
        "test_one_record_more_moves_one_clip_whatever_the_loss_makes_of_their_number"
        "[signs_of_labels_by_place]",
    ),
    mutation(
        16, "numbers that are exchanged among the rows count as each row's own",
        "tracing/axis_walk.py", "set(DRAWS) - OF_DATA.keys()", "set(DRAWS)",
        "training/test_values_and_sizes.py::"
        "test_rows_that_are_shuffled_behind_a_gate_of_zero_are_refused",
    ),
    mutation(
        7, "the low bits of a private mean have no noise", "mechanism/private_statistics.py",
        "return np.round((noisy.numpy() + fine) / grid) * grid", "return noisy.numpy()",
        "mechanism/test_private_statistics.py::"
        "test_no_bit_of_the_sum_is_released_without_noise[0.0]",
    ),
    mutation(
        9, "an own weight's operation that has no rule is overlooked", "layers/operations.py",
        "            failed |= shared.roots_of(op, slots)", "            continue",
        "contracts/test_operations.py::test_an_unknown_operation_is_left_to_the_fallback",
    ),
    mutation(
        8, "layers that keep state are accepted", "training/probe.py",
        "    if changed:\n", "    if False:\n",
        f"{REFUSALS}::test_a_layer_that_changes_state_is_refused_by_name",
    ),
    mutation(
        8, "trainable batch normalization is accepted", "training/symbolic_call.py",
        "            if training:\n", "            if False:\n",
        f"{REFUSALS}::test_trainable_batch_normalization_is_refused_with_the_remedy",
    ),
    mutation(
        9, "variables without a gradient source are skipped", "layers/coverage.py",
        "    if missing:\n", "    if False:\n",
        f"{REFUSALS}::test_a_layer_without_gradient_source_is_refused_by_name",
    ),
    mutation(
        9, "gradients in another example's row are accepted", "training/gradient_probe.py",
        "if not error <= tolerance * scale:", "if False:",
        "training/test_probe.py::test_a_gradient_that_would_be_wrong_is_refused",
    ),
    mutation(
        9, "only the first variable of each block gets noise", "mechanism/gaussian.py",
        ADD_NOISE,
        "[tensor + deviation * next(normals) * (n == 0) for n, tensor in enumerate(block)]",
        WALL,
    ),
    mutation(
        10, "a private optimizer works in an ordinary training step", "optimizers/base.py",
        "not private.\"\"\"\n        raise NotPrivateError(checks.NOT_PRIVATE)",
        "not private.\"\"\"\n        self.inner_optimizer.apply(grads, trainable_variables)",
        f"{REFUSALS}::test_a_private_optimizer_is_no_use_in_a_custom_standard_step",
    ),
    mutation(
        10, "an ordinary optimizer is accepted in a private model", "training/train_step.py",
        "    if not isinstance(optimizer, DPOptimizer):", "    if False:",
        f"{REFUSALS}::test_a_plain_optimizer_in_a_private_model_is_refused",
    ),
    mutation(
        11, "examples of weight zero are taken for padding", "training/train_step.py",
        "presence = unpack_batch(rest)[-1]",
        "presence = unpack_batch(rest)[-1] * tf.cast(batch.get('sample_weight', 1.0) != 0.0, "
        "tf.float32)",
        "training/test_presence.py::test_zero_sample_weight_is_no_padding",
    ),
    mutation(
        12, "metrics count padding", "training/metrics.py",
        "tf.gather(leaf, places)", "tf.identity(leaf)",
        "training/test_presence.py::test_loss_and_metrics_equal_evaluate_on_the_rows_drawn",
    ),
    mutation(
        12, "the statement is silent about metrics", "accounting/statement.py",
        '"Not covered: metrics and losses printed during training, and the choice of '
        'hyperparameters.",',
        "",
        "accounting/test_statement.py",
    ),
    mutation(
        13, "sigma is rounded down", "mechanism/gaussian.py",
        "np.float32(np.inf)) for d", "np.float32(0.0)) for d",
        "mechanism/test_noise.py::test_the_event_is_what_is_added_and_sigma_is_rounded_up",
    ),
    mutation(
        13, "calibration allows one per cent more", "accounting/calibration.py",
        "planned(noise_multiplier))", "planned(noise_multiplier)) / 1.01",
        "accounting/test_calibration.py::"
        "test_calibrated_epsilon_is_at_most_the_target_and_within_one_percent_rdp",
    ),
    mutation(
        13, "PrivacyBudget lets steps pass that exceed it", "training/callbacks.py",
        "left(run, wanted) == wanted", "left(run, wanted) <= wanted",
        "training/test_callbacks.py::"
        "test_training_stops_before_the_step_that_would_exceed_the_budget_without_an_error",
    ),
    Mutation(
        13, "GEP is counted as its public code does: two releases, each amplified by sampling",
        (
            (
                "training/start_run.py",
                "noise_multiplier=mechanism.event.noise_multiplier,",
                "noise_multiplier=mechanism.event.noise_multiplier * num_blocks**0.5,",
            ),
            (
                "mechanism/engine.py",
                "self.steps.assign_add(1)",
                "self.steps.assign_add(len(self.space.shapes))",
            ),
        ),
        ("contracts/test_gep.py::test_the_accounting_is_that_of_dpsgd_with_the_same_noise_"
         "multiplier",),
    ),
    mutation(
        14, "the statement is silent about the neighbouring relation", "accounting/statement.py",
        'f"Neighbouring data sets differ by {neighbours_of([*ledger.entries, *planned], size)}.",',
        "",
        "accounting/test_statement.py",
    ),
    mutation(
        14, "the statement is silent about the public number of examples",
        "accounting/statement.py", ", and the number of {unit}s is public.", ".",
        "accounting/test_statement.py",
    ),
    mutation(
        13, "steps are taken of which no epsilon can be stated", "training/refused_history.py",
        'if accountant == "rdp" or has_search(mechanisms_of(ledger.entries)):', "if False:",
        "training/test_refused_history.py::"
        "test_passes_after_draws_are_refused_by_rdp_before_a_step",
    ),
    mutation(
        13, "a release may leave no epsilon to steps of another unit",
        "training/refused_history.py",
        "if len(units(together)) > len(units(before)) == 1:", "if False:",
        "training/test_refused_history.py::"
        "test_a_release_by_example_is_refused_after_steps_by_user",
    ),
    mutation(
        13, "shuffled passes begin beside what has no epsilon there",
        "training/refused_history.py",
        "if _beside_passes([*ledger.entries, step]) and not _beside_passes(before.entries):",
        "if False:",
        "training/test_refused_history.py::"
        "test_shuffled_passes_and_what_has_no_epsilon_there_refuse_each_other[event0]",
    ),
    mutation(
        13, "a teacher of another unit is learnt from", "training/counted_reads.py",
        "        refuse_next_step(run, others)\n", "        pass\n",
        "training/test_refused_history.py::"
        "test_a_student_by_example_of_a_teacher_by_user_is_refused_before_a_step[a graph]",
    ),
    mutation(
        13, "what a teacher has learnt by user since is learnt from", "training/budget.py",
        "        refuse_next_step(run)\n", "",
        "training/test_refused_history.py::"
        "test_a_student_is_refused_once_its_teacher_has_learnt_by_user[an eager loop]",
    ),
    mutation(
        13, "a run goes on although its teacher has learnt by user since", "training/start_run.py",
        "        refuse_next_step(run)\n", "",
        "training/test_refused_history.py::"
        "test_a_student_is_refused_once_its_teacher_has_learnt_by_user[fit]",
    ),
    mutation(
        13, "what is recorded for a student hides what its teacher has learnt by user",
        "training/budget.py",
        "and run.limit is not None:\n        run.others = SPENDING.ahead(run.record)",
        ":\n        begin(run, model)\n        run.others = SPENDING.ahead(run.record)",
        "training/test_refused_history.py::"
        "test_a_student_is_still_refused_after_something_was_recorded_for_it[put_back]",
    ),
    mutation(
        13, "a teacher that is about to learn by user is learnt from",
        "training/refused_history.py",
        "e.steps or 1", "e.steps",
        "training/test_refused_history.py::"
        "test_a_student_in_a_callback_of_its_teachers_first_fit_by_user_is_refused",
    ),
    mutation(
        13, "a teacher that goes on in a callback does not count for the next step",
        "training/step_guards.py",
        "self._spent != (SPENDING.version, run.other_steps):",
        "self._spent[0] != SPENDING.version:",
        "training/test_budget.py::"
        "test_a_teacher_that_goes_on_in_a_callback_before_a_step_counts_for_that_step[1]",
    ),
    mutation(
        13, "a step that is traced again is within the target of the optimizer alone",
        "training/counted_reads.py",
        "        run.look_again()", "        check_budget(run.engine.model)",
        "training/test_budget.py::"
        "test_what_an_update_reads_of_a_teacher_counts_for_the_first_step"
        "[PrivacyBudget-a regularizer]",
    ),
    mutation(
        13, "a graph is not told of a teacher that has gone on in its run", "training/budget.py",
        "    if run is not None and run.limit is not None:",
        "    if run is not None and run.limit is not None and run.version != SPENDING.version:",
        "training/test_budget.py::"
        "test_a_teacher_that_goes_on_counts_for_a_graph_once_a_block_of_its_student_has_ended",
    ),
    mutation(
        13, "the step that is traced again is not looked at again",
        "training/counted_reads.py",
        "        check_again(run)", "        pass",
        "training/test_budget.py::"
        "test_what_a_loss_comes_to_read_when_it_is_traced_again_counts_for_that_step[False]",
    ),
    mutation(
        13, "what an optimizer is given in a run is its own", "training/judged_graphs.py",
        "        found = {id(each): each for each in handles}",
        "        own = {id(v.value.handle) for v in self._model.optimizer.variables}\n"
        "        found = {id(each): each for each in handles if id(each) not in own}",
        "training/test_budget.py::"
        "test_a_teacher_that_an_optimizer_is_given_when_the_run_has_begun_counts[fit]",
    ),
    mutation(
        15, "what an optimizer was given once is its own for ever", "training/counted_reads.py",
        "SPENDING.read(run.record, handles, added=added)",
        "SPENDING.read(run.record, others, added=added)",
        "training/test_budget.py::"
        "test_a_model_that_an_optimizer_was_given_for_a_while_counts_where_a_loss_asks_it_still"
        "[a graph]",
    ),
    mutation(
        15, "what a teacher tells of public examples costs nothing", "training/fit.py",
        "[*reads, *run.public_reads.values()]", "reads",
        "training/test_spent_by_updates.py::"
        "test_what_the_loss_of_public_examples_reads_of_a_private_model_was_spent"
        "[each step-fitted]",
    ),
    mutation(
        15, "what a teacher tells of public examples costs a loop nothing", "training/trainer.py",
        "[*self._reads, *run.public_reads.values()]", "self._reads",
        "training/test_spent_by_updates.py::"
        "test_what_the_loss_of_public_examples_reads_of_a_private_model_was_spent"
        "[each step-looped]",
    ),
    mutation(
        8, "a basis is traced when there is a batch", "release/anchor.py",
        "find.get_concrete_function() if anchors else", "find if anchors else",
        "contracts/test_gep.py::"
        "test_the_basis_holds_nothing_that_a_loop_has_computed_of_its_batch[False]",
    ),
    mutation(
        12, "what a metric keeps when it is reset comes back into a step",
        "training/judged_graphs.py",
        "found |= {id(v.value.handle) for v in theirs}.difference(kept) & self._read.keys()",
        "pass",
        "training/test_metrics_are_a_dead_end.py::"
        "test_what_a_metric_keeps_when_it_is_reset_is_read_by_no_step[a number-False]",
    ),
    mutation(
        15, "what an optimizer reads in the end is its own", "optimizers/finalized.py",
        "own.issuperset(map(id, traced.captured_inputs))", "own",
        "training/test_spent_by_updates.py::"
        "test_what_an_inner_optimizer_makes_of_weights_in_the_end_is_known_if_it_is_its_own"
        "[True-False]",
    ),
    mutation(
        15, "slots that an optimizer was given are its own", "training/train_step.py",
        " for each in listed if id(each.value.handle) not in others", " for each in listed",
        "training/test_budget.py::"
        "test_slots_of_a_teacher_that_are_put_into_an_optimizer_in_a_run_count[an eager loop]",
    ),
    mutation(
        15, "who comes to read a teacher that is gone learns nothing of it", "spending/owner.py",
        "        records |= self._traces.left.records(others, run)\n", "",
        "training/test_budget.py::"
        "test_a_teacher_that_was_trained_anew_and_is_gone_counts_for_the_next_step[fit]",
    ),
    mutation(
        13, "a teacher that is gone does not count for the next step", "spending/owner.py",
        "return self.ahead(run) - {run}", "return records - {run}",
        "training/test_budget.py::"
        "test_a_teacher_that_was_trained_anew_and_is_gone_counts_for_the_next_step[fit]",
    ),
    mutation(
        15, "weights are looked at between a release and its update", "spending/owner.py",
        "self._look_behind(variables_of(", "self.look_at(variables_of(",
        "training/test_budget.py::"
        "test_an_update_by_other_code_is_no_change_by_others_where_fit_runs_eagerly[an optimizer]",
    ),
    mutation(
        15, "what a step is found to read counts as a look at all", "spending/owner.py",
        "self._look_behind(variables_of(", "self.look_at((), variables_of(",
        "spending/test_owner.py::"
        "test_a_read_inside_of_a_step_hides_nothing_that_others_did_to_a_teacher_before",
    ),
    mutation(
        15, "what a refused file brought stays where its values were loaded before",
        "spending/traces.py", "trace.records -= records\n", "pass\n",
        "faults/test_checkpoints.py::"
        "test_a_refused_file_costs_nothing_where_its_values_were_loaded_before",
    ),
    mutation(
        15, "the ledger of a model inside is taken for that of the model", "training/saving.py",
        'if id(getattr(model, "optimizer", None)) not in looked_for:', "if not looked_for:",
        "faults/test_checkpoints.py::"
        "test_the_ledger_of_a_model_inside_is_not_that_of_the_model",
    ),
    mutation(
        15, "a refused file leaves its momentum in models inside", "training/saving.py",
        "[value for layer in layers_of(model) for value in vars(layer).values()]",
        "vars(model).values()",
        "faults/test_checkpoints.py::"
        "test_a_refused_file_leaves_the_optimizer_of_a_model_inside_as_it_was",
    ),
    mutation(
        15, "copies of what a damaged file brought are taken as public", "spending/values.py",
        "if record.ledger.entries or not known:", "if record.ledger.entries:",
        "faults/test_checkpoints.py::"
        "test_copies_of_what_a_damaged_file_brought_are_unknown_as_well",
    ),
    mutation(
        15, "a search of a Poisson number of trials has no text", "accounting/event_text.py",
        "return str(value) if isinstance(value, float) and math.isinf(value) else value",
        "return value",
        "accounting/test_release_entry.py::"
        "test_a_search_of_a_poisson_number_of_trials_survives_its_text",
    ),
    mutation(
        14, "batches that others drew pass for draws of the library", "accounting/sampling.py",
        '    drawn_by: DrawnBy = "user"\n\n', '    drawn_by: DrawnBy = "library"\n\n',
        "training/test_drawn_by.py::"
        "test_batches_that_others_drew_are_named_in_the_statement_and_the_file[tf.data]",
    ),
    mutation(
        14, "a trainer that is told a sampling alone passes for one with a sampler",
        "training/trainer.py", 'dataclasses.replace(sampler, drawn_by="user")', "sampler",
        "training/test_drawn_by.py::"
        "test_a_trainer_that_is_told_a_sampling_alone_has_a_word[False]",
    ),
    mutation(
        14, "a private search is silent about batches that others drew for its trials",
        "training/private_search.py", 'drawn_by="user" if by_user else "library"',
        'drawn_by="library"',
        "training/test_private_search.py::"
        "test_what_others_drew_and_adapted_layers_of_any_trial_are_said_of_the_result",
    ),
    mutation(
        14, "what adapted layers had a part in is told of the live model alone",
        "training/fit.py", "    note_adapted_layers(model, adapted)\n", "",
        "training/test_other_releases.py::"
        "test_what_was_trained_by_adapted_layers_says_so_wherever_it_goes[augment]",
    ),
    mutation(
        15, "a file that is ahead lacks what another model has spent on the same weights",
        "training/budget.py", " and others == run.noted_others:", ":",
        "faults/test_ledger_path.py::"
        "test_steps_of_another_model_on_shared_weights_are_in_the_file_before_the_next_of_its_own",
    ),
    mutation(
        14, "delta is compared with the smallest data set of a history", "accounting/statement.py",
        "size = max([*sizes,", "size = min([*sizes,",
        "accounting/test_statement.py::test_delta_is_compared_with_the_largest_of_all_data",
    ),
    mutation(
        14, "what is computed from a model is silent about its adapted layers",
        "training/post_processing.py",
        "        spent.merge(PrivacyLedger(map(adapted_entry, adapted_parts(other))))\n", "",
        "training/test_other_releases.py::"
        "test_what_was_computed_from_a_model_with_an_adapted_layer_says_so",
    ),
    mutation(
        15, "quantised layers of a trial do not know what the search cost",
        "training/private_search.py", "for each in things_of(model) if SPENDING",
        "for each in model.trainable_variables if SPENDING",
        "training/test_private_search.py::"
        "test_layers_that_a_trial_leaves_behind_know_the_price_quantised_or_not[True]",
    ),
    mutation(
        15, "steps of an entry may fall", "accounting/ledger.py",
        "steps=max(entry.steps, steps)", "steps=steps",
        "accounting/test_ledger.py::test_steps_only_grow",
    ),
    mutation(
        15, "an optimizer takes no ledger from a file, or that there is none",
        "optimizers/ledger_in_file.py", "SPENDING.adopt([optimizer], ledger, values)", "pass",
        "faults/test_checkpoints.py::"
        "test_weights_that_come_without_a_ledger_leave_the_spend_unknown[model.weights.h5-True]",
    ),
    mutation(
        15, "a checkpoint whose ledger is left out counts as free", "training/saving.py",
        "    if id(getattr(model, \"optimizer\", None)) not in looked_for:", "    if False:",
        "faults/test_checkpoints.py::"
        "test_a_ledger_that_is_left_out_when_loading_leaves_the_spend_unknown",
    ),
    Mutation(
        15, "what learns from private weights does not inherit what was spent on them",
        (
            (
                "spending/owner.py",
                "self.records([*updated, *readers.read_by(self._traces, run)]) | {run}",
                "frozenset({run})",
            ),
            (
                "spending/owner.py",
                "self._traces.attach(alive(run.reading.updated), records)",
                "pass",
            ),
            ("spending/traces.py", "self.attach(alive(run.reading.updated), records)", "pass"),
        ),
        ("training/test_spent_follows_variables.py::"
         "test_a_head_on_a_frozen_private_encoder_costs_both_and_the_encoder_only_its_own",),
    ),
    mutation(
        15, "slots and averages of an optimizer inherit nothing", "training/start_run.py",
        "*run.variables, *run.optimizer.state_variables]", "*run.variables]",
        "training/test_spent_follows_variables.py::"
        "test_slots_averages_and_initial_weights_of_an_optimizer_have_spent_what_they_depend_on",
    ),
    mutation(
        15, "values that other code has changed pass for those of private steps",
        "spending/looks.py", "is_known = digest in trace.seen and", "is_known = trace.seen and",
        "training/test_spent_values.py::"
        "test_a_change_outside_of_private_steps_keeps_the_ledger_and_leaves_the_spend_unknown",
    ),
    mutation(
        15, "a loaded ledger stays with its optimizer, which may be replaced",
        "spending/owner.py",
        "things += [each for thing in things for each in alive(self._traces[thing].links)]", "",
        "spending/test_owner.py::"
        "test_what_is_loaded_into_an_optimizer_reaches_things_that_are_linked_later",
    ),
    mutation(
        15, "frozen values of a loaded file are known only once its model is looked at",
        "spending/owner.py", "in came if records]", "in came if not variables]",
        "training/test_spent_follows_variables.py::"
        "test_values_that_are_frozen_in_the_file_are_known_before_the_library_has_seen_the_model"
        "[copied]",
    ),
    mutation(
        15, "a release by another mechanism counts for half", "accounting/release_entry.py",
        "yield Mechanism(1.0, float(event.noise_multiplier), count)",
        "yield Mechanism(1.0, 2.0 * float(event.noise_multiplier), count)",
        "accounting/test_release_entry.py::test_epsilon_is_that_of_the_union_of_all_events",
    ),
    mutation(
        15, "a release is what its caller's event becomes", "accounting/release_entry.py",
        "copy = own_copy(event)", "copy = event",
        "accounting/test_release_entry.py::"
        "test_what_happens_to_a_callers_event_afterwards_changes_nothing",
        "accounting/test_release_entry.py::"
        "test_an_event_counts_in_whatever_container_and_numbers_it_comes[generator]",
    ),
    mutation(
        15, "a model is taken for built as Keras says", "_keras/layers.py",
        "return unbuilt if model.built else [model, *unbuilt]",
        "return [] if model.built else [model]",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_model_that_keras_calls_built_may_lack_variables",
    ),
    mutation(
        15, "a search of releases by user is one of examples", "training/private_search.py",
        'of_users = entry.unit == "user"',
        'of_users = isinstance(entry, LedgerEntry) and entry.unit == "user"',
        "training/test_private_search.py::test_trials_that_cannot_be_accounted_for_are_refused",
    ),
    mutation(
        15, "events that are handed out can be emptied", "accounting/event_text.py",
        "return tuple(_own(part) for part in value)", "return [_own(part) for part in value]",
        "accounting/test_release_entry.py::"
        "test_an_event_that_is_handed_out_cannot_be_emptied",
    ),
    mutation(
        15, "something is recorded for models that are not built", "spending/trace.py",
        "    if missing:", "    if False:",
        "training/test_unknown_by_what_is_read.py::"
        "test_nothing_is_recorded_for_a_model_whose_variables_do_not_exist",
    ),
    mutation(
        15, "weights of a search stay where its cost has no epsilon", "training/private_search.py",
        "            model.set_weights(before)\n", "",
        "training/test_private_search.py::"
        "test_what_has_no_epsilon_beside_a_search_is_refused_before_it_counts",
    ),
    mutation(
        15, "the ledger's file is locked by record locks, which a process loses by closing it",
        "accounting/ledger_file.py", "fcntl.flock(", "fcntl.lockf(",
        "accounting/test_ledger_file.py::"
        "test_a_second_process_is_refused_whatever_the_first_opens_and_closes",
    ),
    mutation(
        17, "gradients are centred by the mean of this step's data, before its release",
        "release/centred.py", "centred[i] = gradient.centred(centre)",
        "centred[i] = gradient.centred(tf.reduce_mean(gradient.mean_inputs(), 0))",
        f"{HOSTILE}[dense dpsgd centred]",
    ),
    mutation(
        17, "the gradients keep the whole share, and the means get one on top",
        "mechanism/gaussian.py", "adds_up = math.isclose(math.fsum(shares), 1.0, rel_tol=1e-12)",
        "adds_up = True",
        "mechanism/test_block_clips.py::test_shares_that_do_not_add_up_to_one_are_refused",
    ),
    Mutation(
        17, "the means are released without a share of their own",
        (
            ("mechanism/gaussian.py", "math.isclose(math.fsum(shares), 1.0, rel_tol=", "bool("),
            ("optimizers/releases.py", "share = (1.0 - math.fsum(share for _, share in last)) /",
             "share = 1.0 /"),
        ),
        ("training/test_centering.py::"
         "test_gradients_and_means_together_are_one_gaussian_of_the_multiplier",),
    ),
    mutation(
        17, "clip norms follow the counts of this step's data, before their release",
        "release/quantile.py", "scales = tf.unstack(1.0 / subspace.values, num=",
        "norms = [tf.reduce_max(tf.add_n([t.squared_norms() for t in b])) for b in found]\n"
        "        scales = tf.unstack(tf.math.rsqrt(1e-9 + tf.stack(norms)), num=",
        f"{HOSTILE}[dense dpsgd quantile]",
    ),
    Mutation(
        17, "the counts of quantile clipping are released without a share of their own",
        (
            ("mechanism/gaussian.py", "math.isclose(math.fsum(shares), 1.0, rel_tol=", "bool("),
            ("optimizers/releases.py", "share = (1.0 - math.fsum(share for _, share in last)) /",
             "share = 1.0 /"),
        ),
        ("training/test_clip_norms.py::"
         "test_gradients_and_counts_together_are_one_gaussian_of_the_multiplier",),
    ),
    mutation(
        6, "automatic clipping divides by the norm as computed, without a bound",
        "mechanism/clipping.py", "factors = l2_norm_clip / (bound + stability)",
        "factors = l2_norm_clip / (unguarded_norms(block) + stability)",
        "mechanism/test_clipping.py::test_automatic_factors_keep_any_record_within_the_clip",
    ),
    mutation(
        18, "the rows of a unit are clipped one by one", "mechanism/engine.py",
        "gradients = [MeanOfRows(g, batch.weights) for g in gradients]",
        "presence = batch.of_rows(presence)",
        "training/test_units.py::test_a_row_that_is_no_number_costs_its_user_and_no_other",
    ),
    mutation(
        18, "users are counted per row: the ledger has the number of rows", "sampling/poisson.py",
        "size, count, unit = self._batch_size, self._num_examples, self._unit",
        "size, count, unit = self._batch_size, rows.count_rows(self._data), self._unit",
        "training/test_units.py::test_the_ledger_and_the_statement_are_about_users",
        "sampling/test_users.py::"
        "test_users_are_drawn_at_the_rate_that_is_stated_and_their_rows_alike",
    ),
    mutation(
        18, "epsilons of users and of examples are added up", "accounting/ledger.py",
        " or len(units(entries)) > 1", "",
        "training/test_units.py::test_no_epsilon_is_stated_for_users_and_examples_together",
    ),
    mutation(
        0, "noise is reused: every draw has the numbers of the first", "mechanism/noise.py",
        "(number, low))", "(number, tf.zeros_like(low)))",
        "mechanism/test_noise.py::test_every_step_of_a_graph_draws_anew",
    ),
    mutation(
        0, "noise is reused: all parts of a large draw share it", "mechanism/noise.py",
        "tf.constant(used, tf.uint32)", "tf.constant(0, tf.uint32)",
        "mechanism/test_noise.py::test_numbers_drawn_in_several_parts_are_all_different",
    ),
    mutation(
        8, "an id beyond its table is in other examples' vectorised gradients",
        "per_example/vectorized_map.py", "    elements_stay_apart()\n", "",
        OTHERS_HIDDEN + "test_an_id_beyond_its_table_is_in_no_other_examples_gradient"
        "[ids1-embedding-settings0]",
    ),
    mutation(
        16, "an order that rows share is taken for each row's own", "tracing/axis_rules.py",
        "label.axis == 0 else o.unknown", "label.axis == 0 else label",
        OTHERS_HIDDEN + "test_an_order_that_rows_would_share_is_each_examples_own",
    ),
    mutation(
        8, "rows' numbers in a list do not tell them apart", "tracing/axis_walk.py",
        "any(isinstance(label, Public) and not label.even for label in beside)", "False",
        OTHERS_HIDDEN + "test_a_list_that_holds_the_rows_numbers_tells_them_apart[Numbered]",
    ),
    mutation(
        8, "inputs of layers on which no loss depends are not looked at",
        "gradient_methods/recorded.py",
        "found += [(output, site.rows) for site in sites for output in site.outputs]", "",
        OTHERS_HIDDEN + "test_inputs_that_join_examples_are_found_where_no_loss_depends_on_them",
    ),
    mutation(
        15, "a file of a class with its own compile brings no ledger", "optimizers/__init__.py",
        "\nrestore_private_optimizers()\n", "\n",
        "training/test_own_compile.py::test_what_was_spent_comes_back[file-Own]",
    ),
    mutation(
        15, "what the steps of a graph have left is not known",
        "training/trainer.py", "else SPENDING.left_in_graph", "else list",
        "training/test_after_a_graph.py::test_what_the_steps_have_left_is_known[False]",
    ),
    mutation(
        15, "a release of a graph counts as an update", "training/start_run.py",
        "if loss is None else counter", "if steps < 0 else counter",
        "training/test_after_a_graph.py::"
        "test_a_change_between_a_release_and_its_update_is_noticed[True-False]",
    ),
    mutation(
        15, "graphs do not compare before they update", "training/trainer.py",
        "SPENDING.compare_in_graph(values_of", "[] and list(values_of",
        "training/test_after_a_graph.py::"
        "test_a_change_between_a_release_and_its_update_is_noticed[True-True]",
    ),
    mutation(
        15, "graphs do not compare before they release", "training/trainer.py",
        "SPENDING.compare_in_graph(self._model.weights)", "[]",
        "training/test_values_at_a_release.py::"
        "test_changes_that_only_a_release_has_met_leave_the_spend_unknown"
        "[put_back_after_the_release-True]",
    ),
    Mutation(
        15, "nobody looks at the values of a release",
        (
            ("training/trainer.py", "look(self._model)  # at", "pass  # at"),
            (
                "training/trainer.py",
                "        look(self._model)\n        check_budget(",
                "        check_budget(",
            ),
        ),
        ("training/test_values_at_a_release.py::"
         "test_changes_that_only_a_release_has_met_leave_the_spend_unknown"
         "[put_back_after_the_release-False]",),
    ),
    mutation(
        15, "a graph does not see other signs", "spending/digest.py",
        "return tf.cast(tf.reduce_sum(lane), tf.int64)",
        "return tf.cast(tf.reduce_sum(words * (words + 1)), tf.int64)",
        "spending/test_digest.py::"
        "test_the_checksum_of_a_graph_tells_other_signs_and_scales[normal-shape0]",
    ),
    mutation(
        8, "what a callback writes into a bank is not told", "training/fit.py",
        "told, beside, secret", "told, secret",
        "training/test_written_beside.py::test_a_bank_that_a_callback_fills_is_warned_of[weight]",
    ),
    mutation(
        8, "what evaluate writes into a bank is not told", "training/fit.py",
        "nullcontext() if called_by_fit(kwargs) else", "nullcontext() if True else",
        "training/test_written_beside.py::"
        "test_a_bank_that_a_model_fills_when_it_is_asked_is_warned_of_at_once[evaluate-trained_by_fit]",
    ),
    mutation(
        8, "a release that is recorded hides what was written before", "training/other_releases.py",
        "    tell_what_is_written_beside(model)\n", "",
        "training/test_written_beside.py::"
        "test_a_bank_is_looked_at_before_anything_is_on_record_for_it[with_a_record]",
    ),
    mutation(
        8, "what a loop reads is not known until it was written", "training/trainer.py",
        "tell_what_is_written_beside(self._model)  # what forward", "pass  #",
        "training/test_written_beside.py::"
        "test_what_a_loop_writes_that_is_no_weight_is_warned_of[False]",
    ),
    mutation(
        8, "what a loop makes anew at each step is not told", "training/function_code.py",
        "if any(isinstance(other, _VARIABLES) for other in others):", "if False:",
        "training/test_given_forward.py::"
        "test_variables_and_layers_that_are_made_anew_at_each_step_are_warned_of[tf]",
    ),
    mutation(
        8, "adapted layers of a loop are not told", "training/trainer.py",
        "warn_about_adapted_layers(self._model, forward, self._map)", "[]",
        "training/test_other_releases.py::test_adapted_layers_are_seen_in_custom_loops[forward]",
    ),
    mutation(
        8, "adapted layers of a model are not told", "training/other_releases.py",
        "return list(dict.fromkeys(layer.name for layer in layers if _may_be_adapted(layer)))",
        "return []",
        "training/test_other_releases.py::"
        "test_adapted_layers_are_named_by_a_warning_and_the_statement_loaded_ones_too",
    ),
    mutation(
        15, "a file that is loaded under mixed_float16 loses its ledger",
        "training/make_private.py",
        "        record_loss_scaling(model, False)", "        pass",
        "training/test_model_kinds.py::"
        "test_a_file_that_is_loaded_under_mixed_float16_keeps_its_ledger[after]",
    ),
    mutation(
        15, "files say nothing of values that were computed from private ones",
        "training/post_processing.py", "SPENDING.computed(", "list(",
        "training/test_spent_values.py::"
        "test_copies_of_what_was_computed_from_private_models_are_known_by_their_file[average]",
    ),
    mutation(
        15, "a graph knows variables of others that were looked at", "spending/present.py",
        "tf.raw_ops.ReadVariableOp(resource=held.handle, dtype=held.dtype)", "held.read_value()",
        "spending/test_owner.py::"
        "test_a_graph_in_which_somebody_asks_has_no_variables_of_others",
    ),
    mutation(
        15, "what others did to what a step reads is not looked at", "spending/owner.py",
        "            self.check(variables)\n            looks.", "            looks.",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_teacher_that_was_trained_ordinarily_before",
    ),
    mutation(
        15, "a copy of a private file that is asked costs nothing", "spending/owner.py",
        "self._traces.came(run, handle, came)", "pass",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_copy_of_a_file_that_is_asked_has_spent_what_the_file_says[in its loss]",
    ),
    mutation(
        15, "steps before the look that finds a change do not count", "spending/readers.py",
        "since.get(run, 0) if record in late else run.updated_at", "run.updated_at",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_teacher_that_is_trained_ordinarily_between_steps_of_a_loop[True-the student]",
    ),
    mutation(
        15, "a graph compares after its first update only", "spending/looks.py",
        "        expect_values(traces, variables)\n    return", "        pass\n    return",
        "training/test_values_at_a_release.py::"
        "test_a_change_before_the_first_release_of_a_graph_is_noticed",
    ),
    mutation(
        15, "what is built inside of post_processing spends nothing",
        "training/post_processing.py",
        "if not holding[records]]", "if not hold(SPENDING.records([model]), spent)]",
        "training/test_unknown_by_what_is_read.py::"
        "test_what_is_built_inside_of_post_processing_has_spent_what_is_stated[subclass]",
    ),
    mutation(
        15, "blocks of post_processing are traced", "training/post_processing.py",
        "    if not tf.executing_eagerly():\n        raise",
        "    if False:\n        raise",
        "training/test_unknown_by_what_is_read.py::"
        "test_post_processing_inside_of_a_graph_is_refused",
    ),
    mutation(
        15, "a quantised teacher costs nothing", "spending/trace.py",
        "own = own_weights(thing) if", "own = [] if",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_quantised_teacher_counts_with_its_new_variables",
    ),
    mutation(
        15, "teachers that a callback exchanges between steps are not looked at",
        "training/step_guards.py",
        "(reads or not SPENDING.let_go(self.model.weights))",
        "not SPENDING.let_go(self.model.weights)",
        "training/test_unknown_by_what_is_read.py::"
        "test_copies_that_take_turns_in_a_teacher_count_each",
    ),
    mutation(
        15, "a change that was undone was none", "spending/looks.py",
        "in trace.seen and not was_changed(trace)",
        "in trace.seen",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_change_that_a_graph_has_met_stays_noticed_when_it_is_undone",
    ),
    mutation(
        1, "passes that a callback ends early are counted together",
        "training/step_guards.py",
        "if self._new_passes and length is not None:", "if False:",
        "training/test_counted_in_full.py::"
        "test_passes_that_a_callback_ends_early_count_as_whole_ones",
    ),
    mutation(
        13, "noise that was planned for a fit without steps is used by the next",
        "training/start_run.py", "        and (run.limit is None or run.steps > 0)\n", "",
        "training/test_counted_in_full.py::"
        "test_noise_is_planned_for_the_steps_of_the_fit_that_takes_them[1-10-False]",
    ),
    mutation(
        8, "examples are channels of one image in vectorised depthwise convolutions",
        "_tensorflow.py", "converters.pop(f\"DepthwiseConv2dNative{name}\", None)", "pass",
        OTHERS_HIDDEN + "test_a_number_that_is_none_is_in_no_other_examples_depthwise_gradient"
        "[own-nan]",
    ),
    mutation(
        8, "what a layer's second pass reads is not looked at", "gradient_methods/recorded.py",
        "return found + [each for site in sites for each in site.read]", "return found",
        OTHERS_HIDDEN + "test_what_a_layers_second_pass_reads_of_others_is_found[with_argument]",
    ),
    mutation(
        8, "filters made of examples are used as if they were public", "tracing/axis_rules.py",
        "if any(isinstance(o.labels[index], Rows) for index in filters):", "if False:",
        "tracing/test_axis_walk.py::"
        "test_what_joins_examples_is_found_whatever_the_numbers_are[filters of examples]",
    ),
    mutation(
        8, "what an operation's other inputs hold of examples is not looked at",
        "tracing/axis_layout.py",
        "return o.unknown if any(isinstance(label, Rows) for label in others) else rule(o)",
        "return rule(o)",
        "tracing/test_axis_walk.py::test_what_is_not_known_is_left_to_the_probe"
        "[rolled by numbers of the rows]",
    ),
    mutation(
        8, "counts may weigh an example by the numbers of others", "tracing/axis_layout.py",
        "if isinstance(weights, Rows) and weights != label:", "if False:",
        "tracing/test_axis_walk.py::test_what_is_not_known_is_left_to_the_probe"
        "[counts with weights of others]",
    ),
    mutation(
        8, "a diagonal keeps examples apart", "tracing/axis_rules.py",
        "if uneven or term.count(letter) > 1:", "if uneven:",
        OTHERS_HIDDEN + "test_a_diagonal_that_numbers_the_rows_does_not_tell_them_apart",
    ),
    mutation(
        1, "shuffled batches are taken for Poisson draws", "sampling/declared.py",
        "refuse_fixed_batches(dataset, declared.batch_size,",
        "(lambda *ignored: None)(dataset, declared.batch_size,",
        "sampling/test_declared.py::"
        "test_batches_that_are_no_draws_are_refused_as_poisson_where_the_pipeline_tells[shuffled]",
    ),
    mutation(
        1, "rows that repeat are one pass", "sampling/declared.py",
        "            refuse_repeated_rows(dataset)\n", "            pass\n",
        "sampling/test_declared.py::"
        "test_rows_that_come_again_within_a_pass_are_refused_where_the_pipeline_tells[repeated]",
    ),
    mutation(
        12, "digests of rows that are printed have no key", "sampling/rows_digest.py",
        "digest_size=_BYTES, key=key)\n    for indices", "digest_size=_BYTES)\n    for indices",
        "workers/test_parts.py::test_a_digest_tells_nothing_without_its_key",
    ),
    mutation(
        13, "what a callback spends just before a step is not looked at",
        "training/step_guards.py",
        "            if self._spent != (SPENDING.version, run.other_steps):",
        "            if False:",
        "training/test_callbacks.py::"
        "test_what_a_callback_releases_just_before_a_step_leaves_no_room_for_it[optimizer]",
    ),
    mutation(
        13, "two threads train the same weights", "training/running_fit.py",
        "        _refuse_shared_weights(model)\n", "",
        "training/test_running_fit.py::"
        "test_two_models_with_the_same_weights_are_not_trained_in_two_threads",
    ),
    mutation(
        8, "a tensor of the loop in forward is taken for public", "training/function_code.py",
        "if any(isinstance(other, _ARRAYS) for other in others):", "if False:",
        "training/test_given_forward.py::"
        "test_a_number_of_the_loop_that_may_come_from_the_batch_is_refused[tensor]",
    ),
    mutation(
        8, "layers may keep what they see at inference", "training/judged_fit.py",
        "    refuse_writes_at_inference(model, data.element_spec[\"x\"])\n", "",
        "training/test_inference.py::"
        "test_a_layer_that_keeps_what_it_sees_at_inference_is_refused[as_a_layer]",
    ),
    mutation(
        15, "what a test step of one's own learns is taken for private",
        "training/watched_weights.py",
        "    finally:\n        tell_changes(model)\n",
        "    finally:\n        SPENDING.see(model.weights)\n",
        "training/test_inference.py::"
        "test_what_is_learnt_without_privacy_is_not_taken_for_private[evaluate]",
    ),
    mutation(
        13, "graphs of a loop go on with the budget that another run has used",
        "training/start_run.py",
        "            state.run.allowed_in_graphs.assign(0)\n", "            pass\n",
        "training/test_budget.py::"
        "test_the_graph_of_a_loop_takes_no_step_after_fit_has_used_its_budget",
    ),
    mutation(
        13, "a trainer does not look at its budget before each gradient", "training/trainer.py",
        "self.check_budget()\n        refuse_composites(batch)",
        "pass\n        refuse_composites(batch)",
        "training/test_trainer.py::test_the_budget_is_checked_before_each_gradient",
    ),
    mutation(
        8, "vectorised rolls along a negative axis are along that of the examples",
        "_tensorflow.py",
        '    converters["Roll"] = functools.partial(_with_positive_axes, converters["Roll"])\n',
        "",
        "port/test_tensorflow.py::"
        "test_an_element_that_holds_no_numbers_changes_no_other[roll-True]",
    ),
    mutation(
        8, "vectorised gradients are used whatever those of single examples are",
        "training/chosen_method.py",
        "not error <= same * norm",
        "False",
        OTHERS_HIDDEN + "test_a_rule_for_vectorising_that_is_wrong_is_noticed_and_a_loop_taken",
    ),
    mutation(
        1, "one example decides in which batch others are", "sampling/declared.py",
        "        refuse_batches_by_value(dataset)\n",
        "        pass\n",
        "sampling/test_declared.py::"
        "test_batches_that_an_example_chooses_for_others_are_refused[buckets-shuffle]",
    ),
    mutation(
        1, "rows are padded to the longest of their batch", "sampling/declared.py",
        "    batches = with_one_shape(batches, dataset)\n",
        "",
        "sampling/test_declared.py::"
        "test_rows_padded_to_the_longest_of_their_batch_are_refused[of a generator]",
    ),
    mutation(
        8, "a preprocessor of the user's own sees all rows of a draw", "training/preprocessed.py",
        "    seen_whole = _is_stock(model)\n",
        "    seen_whole = True\n",
        "training/test_preprocessed.py::"
        "test_a_preprocessor_of_ones_own_sees_one_row_at_a_time[the largest]",
    ),
    mutation(
        16, "masks of a preprocessor follow the global seed", "training/preprocessed.py",
        "        with random_numbers_from(stream), seeds_kept():\n",
        "        with seeds_kept():\n",
        "training/test_preprocessed.py::test_masks_that_a_preprocessor_draws_follow_no_seed",
    ),
    mutation(
        16, "what a source draws when a record is read follows the global seed",
        "sampling/python_numbers.py",
        "    np.random.seed(np.frombuffer(secrets.token_bytes(256), np.uint32))\n",
        "    pass\n",
        "training/test_python_numbers.py::test_numbers_of_python_and_numpy_are_secret_in_fit",
    ),
    mutation(
        8, "what functions of a forward use is not looked at", "training/function_code.py",
        "            return self._of_function(thing) if _is_own(thing) else _Itself(thing)\n",
        "            return _Itself(thing.__code__)\n",
        "training/test_given_forward.py::"
        "test_it_is_refused_whatever_hands_it_over[of_the_notebook]",
    ),
    mutation(
        8, "the graph of a custom loop is never looked at again", "training/loop_graph.py",
        "in _LOOKS:\n", "in ():\n",
        "training/test_given_forward.py::test_what_code_does_not_show_is_refused_where_it_has_"
        "changed_at_the_second_release[a property]",
    ),
    mutation(
        16, "what a record draws in a custom loop follows the global seed", "sampling/records.py",
        "                renew_python_numbers()\n", "                pass\n",
        "training/test_python_numbers.py::"
        "test_numbers_of_records_are_secret_in_a_custom_loop",
    ),
    mutation(
        8, "another forward makes a trainer forget what the first one used", "training/trainer.py",
        "            found = self._forwards[code.key] = JudgedForward(code, judge)\n",
        "            found = JudgedForward(code, judge)\n"
        "            self._forwards = {code.key: found}\n",
        "training/test_given_forward.py::"
        "test_it_is_refused_where_two_functions_are_used_in_turn[tensor]",
    ),
    mutation(
        16, "what a generator draws ahead of fit follows the global seed", "training/fit.py",
        "    with secret_python_numbers(seeded):  # generators are read ahead of\n",
        "    with secret_python_numbers(True):\n",
        "training/test_python_numbers.py::"
        "test_numbers_of_batches_that_are_read_ahead_are_secret_as_well[a function]",
    ),
    mutation(
        15, "what a user's callback does to weights is not looked at", "training/step_guards.py",
        "        tell_changes(self.model)  # before Keras puts averages in their place",
        "        SPENDING.see(self.model.weights)",
        "training/test_spent_values.py::test_ordinary_training_in_a_callback_of_fit_leaves_the_"
        "spend_unknown[on_epoch_end]",
    ),
    mutation(
        18, "batches with a stage behind them are taken for records", "sampling/stages.py",
        "    return inside or next(filter(None, map(_join, read_by(dataset))), \"\")\n",
        "    return \"\"\n",
        "mechanism/test_private_statistics.py::"
        "test_what_joins_or_repeats_records_is_not_taken_for_records[batches, mapped]",
    ),
    mutation(
        2, "a step that XLA does not stop releases a draw again", "mechanism/engine.py",
        "tf.where(holds, total, 0.0)", "total",
        "training/test_draws.py::"
        "test_where_xla_drops_errors_a_refused_release_leaves_nothing_in_the_optimizer",
    ),
    mutation(
        15, "what a callback does between two steps passes for a step", "training/step_guards.py",
        "        self.holds = act_between_steps(self._others)", "        self.holds = False",
        "training/test_spent_values.py::test_ordinary_training_in_a_callback_of_fit_leaves_the_"
        "spend_unknown[on_batch_end]",
    ),
    mutation(
        0, "a run goes on with the noise of a seed that was replaced", "training/start_run.py",
        '        "seed": optimizer.seed,\n', "",
        "training/test_clip_norms.py::test_a_run_that_is_saved_and_loaded_goes_on_bit_for_bit",
    ),
    mutation(
        1, "the first record decides which of the others can be read", "sampling/records.py",
        "for record in read[1:]:", "for record in read[:0]:",
        "sampling/test_records.py::"
        "test_one_record_of_another_form_does_not_decide_which_others_are_used[0-float for int]",
    ),
    mutation(
        8, "one value of a list decides the dtype of all", "sampling/rows.py",
        "    if len(found) > 1:\n        raise", "    if not found:\n        raise",
        "sampling/test_rows.py::"
        "test_one_value_of_another_kind_does_not_change_the_others_of_a_list[flat-nan]",
    ),
    mutation(
        8, "a tokenizer keeps words by a hash without a key", "training/preprocessed.py",
        "        keep_no_words(part)", "        hash(part)",
        "training/test_keras_hub_tasks.py"
        "::test_no_word_of_a_text_is_kept_in_what_is_exported[nothing]",
    ),
    mutation(
        7, "XLA keeps bits of bfloat16 for some products only", "per_example/arithmetic.py",
        "_KEPT_BFLOAT16 if tensor.dtype == tf.bfloat16 else _KEPT", "-1",
        "hostile/test_tensor_cores.py"
        "::test_what_is_bfloat16_is_cut_too_in_case_that_xla_keeps_more_of_it",
    ),
    mutation(
        7, "clipped pairs of bfloat16 lose half of their bits", "per_example/arithmetic.py",
        "[leading, tensor - leading]", "[leading, 0.0 * leading]",
        "hostile/test_tensor_cores.py"
        "::test_two_halves_of_a_number_lose_less_than_2_to_the_minus_14[_cut]",
    ),
    mutation(
        8, "functions that stock preprocessors hold see all rows", "training/preprocessed.py",
        "if callable(f) and name not in _GIVEN_BY_KERAS", "if False",
        "training/test_preprocessed.py::"
        "test_what_a_user_puts_into_a_stock_preprocessor_sees_one_row_at_a_time[Images-scaled]",
    ),
    mutation(
        8, "a preprocessor may keep state", "training/preprocessed.py",
        "    if writes:", "    if False:",
        "training/test_preprocessed.py::"
        "test_a_preprocessor_that_may_keep_something_of_a_row_is_refused[a variable]",
    ),
    mutation(
        8, "code that is decorated passes for what it wraps", "training/function_code.py",
        "for module in (function.__module__, written)", "for module in (function.__module__,)",
        "training/test_preprocessed.py::"
        "test_what_a_user_puts_into_a_stock_preprocessor_sees_one_row_at_a_time[Decorated-None]",
    ),
    mutation(
        13, "a number of steps below one is taken for an epoch without end", "training/fit.py",
        "_validate.integer_at_least(1, steps_per_epoch=steps_per_epoch)", "steps_per_epoch",
        "training/test_budget.py::"
        "test_a_number_of_steps_below_one_does_not_switch_the_budget_off[False--1]",
    ),
    mutation(
        8, "a missing entry makes floats of the integers of other rows", "sampling/rows.py",
        "dtypes = dtypes_without_missing(data, array)", "dtypes = {array.dtype}",
        "sampling/test_rows.py::"
        "test_a_missing_entry_does_not_change_the_other_rows_of_a_column[nullable]",
    ),
    mutation(
        8, "a later batch of another dtype is converted", "sampling/batched_sources.py",
        "tf.nest.map_structure(_widen, spec, element)  # TensorFlow would convert other dtypes", "",
        "sampling/test_declared.py::"
        "test_a_later_batch_of_another_dtype_ends_the_pass_instead_of_being_converted[generator]",
    ),
    mutation(
        1, "parts of a data set are taken for different ones", "sampling/repeated_rows.py",
        "or not part.is_apart_from(other_part)", "",
        "sampling/test_repeated_rows.py::test_parts_with_common_rows_are_not[a wrong border]",
    ),
    mutation(
        12, "what metrics report may be written to a weight", "training/train_step.py",
        "        with judged.watched_metrics(), seeds_put_back(model):\n"
        "            return model.get_metrics_result()",
        "        return model.get_metrics_result()",
        "training/test_metrics_are_a_dead_end.py::"
        "test_a_compiled_metric_that_writes_to_a_weight_when_it_is_asked_is_refused[False]",
    ),
    mutation(
        15, "a load that fails takes away what others have spent meanwhile", "spending/traces.py",
        "trace.records -= {*added}", "trace.records = frozenset()",
        "spending/test_owner.py::test_what_others_spend_while_a_load_fails_stays",
    ),
    mutation(
        15, "what an average costs is what was spent before it began",
        "training/post_processing.py",
        "    with SPENDING.tellers.inside(tell):", "    if True:",
        "training/test_spent_values.py::"
        "test_an_average_over_a_whole_fit_has_spent_what_the_fit_has",
    ),
    mutation(
        15, "threads write to the ledger's file at once", "accounting/ledger_file.py",
        "with self._adding:", "if self._adding:",
        "accounting/test_ledger_file.py::test_what_several_threads_add_is_all_there",
    ),
    mutation(
        15, "each trainer has passes of its own", "training/trainer.py",
        "self._passes = self._run.passes",
        "self._passes = type(self._run.passes)(sampling, self._run.engine.steps)",
        "training/test_trainer.py::"
        "test_passes_of_two_trainers_of_one_run_are_those_of_the_run",
    ),
    Mutation(
        15, "what ordinary steps leave in an optimizer passes for public",
        (
            (
                "optimizers/ledger_in_file.py",
                "return [*model.weights, *filter(tells_of_data, of_optimizer)]",
                "return model.weights",
            ),
            ("spending/readers.py", "for thing in read_by(traces, run) for", "for thing in () for"),
        ),
        (
            "training/test_spent_values.py::"
            "test_what_ordinary_steps_leave_in_an_optimizer_leaves_the_spend_unknown",
        ),
    ),
    mutation(
        15, "an update in eager mode is taken for what the first was", "training/train_step.py",
        "and not _is_updated_by_libraries(model, optimizer)", "and read_before == 0",
        "training/test_spent_by_updates.py::"
        "test_what_an_eager_update_begins_to_read_later_was_spent[loop-Later]",
    ),
    mutation(
        15, "what an object of Keras is given passes for its own", "training/known_code.py",
        "return id(thing) in own", "return True",
        "training/test_known_code.py::"
        "test_what_others_wrote_or_put_into_it_is_not[another's variable]",
    ),
    mutation(
        15, "a file of another thread counts no later steps", "optimizers/ledger_in_file.py",
        "    if grow_elsewhere(SPENDING.records([optimizer])):", "    if False:",
        "training/test_running_fit.py::"
        "test_a_file_that_another_thread_saves_while_fit_goes_on_says_so[model.keras]",
    ),
    mutation(
        15, "a file that is loaded in part makes graphs forget what they left",
        "spending/marks.py", "trace.mark.assign([_ANY, 0])", "unmark(trace)",
        "training/test_spent_values.py::"
        "test_a_change_after_a_file_and_before_the_next_step_is_noticed"
        "[load_the_layers_that_fit-True]",
    ),
    mutation(
        15, "graphs compare with what a refused file brought", "spending/traces.py",
        "                    put_back(trace, state)\n", "",
        "training/test_spent_values.py::"
        "test_a_refused_file_of_an_earlier_step_is_no_change_of_values[True]",
    ),
    mutation(
        15, "copies of what a search has made are taken as public",
        "training/private_search.py",
        "[v for v, old, new in of_all if not np.array_equal(old, new)]", "[]",
        "training/test_private_search.py::"
        "test_copies_of_what_a_search_has_made_are_known_by_the_file_of_its_result",
    ),
    mutation(
        15, "what quantisation has made is not looked at", "spending/owner.py",
        "self.see(self._traces.tell(thing))", "self._traces.tell(thing)",
        "training/test_spent_follows_variables.py::"
        "test_a_change_of_quantised_values_leaves_the_spend_unknown",
    ),
    mutation(
        15, "the digests of a refused file stay known", "spending/values.py",
        "                self._records[key] = self._records[key] - {record} | before\n",
        "                pass\n",
        "training/test_spent_values.py::"
        "test_a_change_after_a_file_and_before_the_next_step_is_noticed"
        "[refuse_a_damaged_file-True]",
    ),
    mutation(
        15, "what was found of values is lost when their layers are quantised",
        "optimizers/ledger_in_file.py",
        "    SPENDING.tell_layers(layers)\n", "",
        "training/test_spent_follows_variables.py::"
        "test_what_was_found_of_values_stays_with_their_layers_when_these_are_quantised"
        "[ordinarily_trained-relu]",
    ),
    mutation(
        15, "layers whose activation is a layer forget what was found when they are quantised",
        "_keras/layers.py",
        "    return [variable for variable in layer.weights if id(variable) not in others]",
        "    return [] if inner else layer.weights",
        "training/test_spent_follows_variables.py::"
        "test_what_was_found_of_values_stays_with_their_layers_when_these_are_quantised"
        "[ordinarily_trained-LeakyReLU]",
    ),
    mutation(
        15, "what a graph asks beside forward costs nothing", "training/read_around.py",
        "    if handles:\n", "    if False:\n",
        "training/test_spent_follows_variables.py::"
        "test_a_graph_that_asks_a_private_teacher_beside_forward_has_spent_what_that_has"
        "[soft_labels]",
    ),
    mutation(
        15, "arguments of a function inside come from nowhere", "tracing/read_behind.py",
        "            return self._read_around\n", "            return []\n",
        "tracing/test_read_behind.py::"
        "test_arguments_of_a_function_inside_are_taken_for_all_that_was_read_before",
    ),
    mutation(
        15, "whom a private teacher keeps in a batch costs nothing", "training/trainer.py",
        "self._run, [batch, presence], self", "self._run, batch, self",
        "training/test_spent_follows_variables.py::"
        "test_a_graph_that_asks_a_private_teacher_beside_forward_has_spent_what_that_has"
        "[present_by_its_word]",
    ),
    mutation(
        15, "an optimizer that was never compiled trains, and is not saved",
        "training/start_run.py",
        "    save_with(model, optimizer)\n", "",
        "training/test_own_compile.py::"
        "test_an_optimizer_that_is_put_into_a_model_is_saved_with_it[False]",
    ),
    mutation(
        15, "a file of a loaded model whose class sets its optimizer is without that",
        "optimizers/own_compile.py",
        "        record_optimizer(model, optimizer)  # else the next file would be without\n", "",
        "training/test_own_compile.py::"
        "test_the_next_file_of_a_loaded_model_has_its_optimizer_too",
    ),
    mutation(
        8, "all outputs of a stored normalisation are taken for what they are on paper",
        "tracing/axis_walk.py",
        "[operation.unknown] * (count - 1)", "[Public()] * (count - 1)",
        "tracing/test_axis_walk.py::"
        "test_what_is_not_known_is_left_to_the_probe[another output of a stored normalisation]",
    ),
    mutation(
        15, "what a graph adds to gradients counts only if something was spent on it before",
        "spending/record.py",
        "in (*self.handles, *self.added)]", "in self.handles]",
        "training/test_spent_follows_variables.py::"
        "test_a_graph_is_pulled_towards_what_is_trained_only_later",
    ),
    mutation(
        15, "files that are loaded without their optimizer bring weights alone",
        "optimizers/__init__.py",
        "\nknow_what_files_hold()\n", "\n",
        "training/test_known_files.py::"
        "test_a_file_that_is_loaded_without_its_optimizer_brings_what_was_spent"
        "[a_part_of_a_class_that_makes_it]",
    ),
    mutation(
        15, "of a damaged ledger nothing is known", "optimizers/ledger_in_file.py",
        "ValueError):\n        ledger = PrivacyLedger(prior_spend_unknown=True)\n",
        "ValueError):\n        ledger = PrivacyLedger()\n",
        "training/test_known_files.py::"
        "test_of_a_damaged_file_it_is_known_that_something_was_spent[privacy_ledger]",
    ),
    mutation(
        15, "others may change what a file brought before anybody asks",
        "optimizers/known_files.py",
        "        SPENDING.see([*new, *SPENDING.recognise(weights)])\n", "",
        "training/test_known_files.py::"
        "test_what_others_change_of_a_file_before_anybody_asks_is_noticed",
    ),
    mutation(
        15, "what others changed before a file was loaded is not noticed",
        "optimizers/known_files.py",
        "    SPENDING.check(weights)\n", "",
        "training/test_known_files.py::"
        "test_what_others_changed_before_a_file_was_loaded_stays_unknown",
    ),
    mutation(
        15, "values that change as they are loaded are taken as public",
        "optimizers/known_files.py",
        "SPENDING.add([*layers, *weights], ledger)", "SPENDING.add([], ledger)",
        "training/test_known_files.py::"
        "test_a_file_that_is_loaded_without_its_optimizer_brings_what_was_spent"
        "[kernels_that_are_merged]",
    ),
    mutation(
        15, "what a regulariser is given of a private teacher costs nothing",
        "training/train_step.py", "[*part.given, *part.reads]", "part.reads",
        "training/test_spent_follows_variables.py::"
        "test_a_graph_that_asks_a_private_teacher_beside_forward_has_spent_what_that_has"
        "[as_its_regulariser_was_told]",
    ),
    mutation(
        13, "graphs know what a budget allowed before a release was recorded",
        "training/other_releases.py", "    look(model)\n    tell_graphs(model)\n",
        "    look(model)\n",
        "training/test_budget.py::"
        "test_the_graph_of_a_loop_knows_what_was_recorded_since_it_was_traced"
        "[a_release_is_recorded]",
    ),
    mutation(
        13, "what a graph was planned for is final, whatever is recorded",
        "training/budget.py", "    run.limit.left(run, _FURTHER * run.limit.planned)\n", "",
        "training/test_budget.py::"
        "test_the_graph_of_a_loop_knows_what_was_recorded_since_it_was_traced"
        "[another_model_is_mixed_in]",
    ),
    mutation(
        15, "an update that is traced before the first release is not looked at",
        "training/train_step.py", "        if not tf.executing_eagerly():\n                around",
        "        if not tf.executing_eagerly() and judged is not None:\n                around",
        "training/test_spent_follows_variables.py::"
        "test_a_graph_that_asks_a_private_teacher_beside_forward_has_spent_what_that_has"
        "[towards_its_weights_as_traced_before_any_release]",
    ),
    mutation(
        15, "a callback may save a model without what was spent", "training/saving.py",
        "    if any(isinstance(each, _ORBAX) for each in callbacks):\n", "    if False:\n",
        "training/test_known_files.py::"
        "test_a_checkpoint_that_keeps_no_ledger_is_refused_before_anything_is_spent",
    ),
    mutation(
        15, "steps of an optimizer's state of which nothing is known are none",
        "optimizers/ledger_in_file.py",
        "if not is_trained and int(present_value(optimizer.iterations)) > 0:", "if False:",
        "training/test_known_files.py::"
        "test_a_state_with_steps_of_which_nothing_is_known_is_unknown[the model]",
    ),
    mutation(
        15, "files that Keras writes do not look at what a graph has read",
        "optimizers/ledger_in_file.py",
        "        look_at_values(model)\n", "        SPENDING.check(values_of(model))\n",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_teacher_that_is_trained_ordinarily_between_steps_of_a_loop[True-a file by Keras]",
    ),
    mutation(
        15, "a part does not know what others changed of the rest", "spending/readers.py",
        "for thing in read_by(traces, run) for", "for thing in known_only_to(traces, run) for",
        "training/test_unknown_by_what_is_read.py::"
        "test_a_part_knows_what_others_changed_of_the_rest_between_steps[another layer-True]",
    ),
    mutation(
        15, "what others did is looked at one step behind those that are asked",
        "spending/owner.py",
        "            runs += readers.runs_behind(self._traces, run, read).difference(runs)\n", "",
        "training/test_spent_by_what_is_read.py::"
        "test_what_others_did_to_what_a_teacher_reads_is_unknown_of_who_learns_from_it",
    ),
    mutation(
        15, "values of a file are known from the look on that finds them", "spending/traces.py",
        "self.attach([thing], records, since)", "self.attach([thing], records)",
        "training/test_spent_by_what_is_read.py::"
        "test_values_of_a_file_in_a_frozen_part_are_known_of_what_learnt_on_them",
    ),
    mutation(
        15, "what a teacher has not read yet counts for who learns from it", "spending/readers.py",
        "other.due() for other in behind", "other.reading.found for other in behind",
        "training/test_spent_by_what_is_read.py::"
        "test_what_others_did_after_the_last_step_of_a_teacher_says_nothing_of_who_learns_from_it",
    ),
    mutation(
        15, "a state of which some values are known may come with any steps",
        "optimizers/ledger_in_file.py",
        "not all(record.is_loaded for record in SPENDING.records([optimizer]))",
        "bool(SPENDING.records([optimizer]))",
        "training/test_known_files.py::"
        "test_such_a_state_is_unknown_whatever_is_known_of_some_of_its_values",
    ),
    mutation(
        15, "a block says nothing of those who learnt inside of it", "training/post_processing.py",
        "SPENDING.add(lacking, spent, known.get(model), since)",
        "SPENDING.add(lacking, spent, known.get(model))",
        "training/test_spent_by_what_is_read.py::"
        "test_who_learns_inside_of_a_block_has_spent_what_its_model_is_made_of",
    ),
    mutation(
        15, "a budget does not know what graphs have taken over", "spending/owner.py",
        "        self._traces.count_what_was_read()\n        return self._traces.version",
        "        return self._traces.version",
        "training/test_spent_by_what_is_read.py::"
        "test_a_budget_that_is_checked_knows_what_a_graph_has_taken_over",
    ),
    mutation(
        15, "what an update reads after its release does not count", "spending/readers.py",
        "in late else run.updated_at", "in late else run.steps",
        "training/test_spent_by_what_is_read.py::"
        "test_what_a_teacher_spends_between_a_release_and_the_update_that_reads_it_counts",
    ),
    mutation(
        15, "a teacher that is gone gives nothing on", "spending/readers.py",
        "if updated or run.steps > at:", "if updated:",
        "training/test_spent_by_what_is_read.py::"
        "test_a_teacher_that_is_gone_gives_on_what_it_has_read",
    ),
    mutation(
        15, "who has made what a step reads is forgotten with it", "spending/readers.py",
        "run.reading.behind |= ", "run.reading.behind = ",
        "training/test_spent_by_what_is_read.py::"
        "test_a_teacher_that_is_gone_gives_on_what_it_has_read",
    ),
    mutation(
        15, "what one reader finds in a variable is its own", "spending/traces.py",
        "                reader.reading.came |= records\n", "                pass\n",
        "training/test_spent_by_what_is_read.py::"
        "test_what_one_student_finds_in_a_teacher_is_known_of_others_who_have_read_it",
    ),
    mutation(
        15, "what quantisation has replaced is no longer read by anybody", "spending/readers.py",
        "each for each in alive(run.reading.layers) if id(each) not in known", "",
        "training/test_spent_by_what_is_read.py::"
        "test_who_has_learnt_from_a_model_that_is_quantised_inside_of_its_block",
    ),
    mutation(
        15, "the first look after quantisation goes by new variables alone",
        "optimizers/ledger_in_file.py",
        "SPENDING.look_at(values, layers)", "SPENDING.look_at(values)",
        "training/test_spent_by_what_is_read.py::"
        "test_the_first_look_after_quantisation_finds_what_steps_before_have_read",
    ),
    mutation(
        13, "a budget that is checked does not look at what the graph reads",
        "training/trainer.py",
        "        look(self._model)\n        check_budget(", "        check_budget(",
        "training/test_spent_by_what_is_read.py::"
        "test_a_budget_that_is_checked_knows_values_of_a_file_in_what_a_graph_reads",
    ),
    mutation(
        15, "the ledger's file is not told what a look finds in what was read",
        "training/state.py",
        "    tell_file(model)\n    return found",
        "    if found:\n        tell_file(model)\n    return found",
        "training/test_spent_by_what_is_read.py::"
        "test_the_file_of_a_ledger_holds_what_is_found_in_what_a_graph_has_read",
    ),
    mutation(
        15, "what others did to a variable is forgotten with it", "spending/traces.py",
        "run.reading.gone.append((handle, trace))", "pass",
        "training/test_spent_by_what_is_read.py::"
        "test_what_others_did_to_what_is_gone_is_unknown_of_the_encoder_that_is_kept",
    ),
    mutation(
        15, "steps that are taken during a look were looked at", "spending/owner.py",
        "before.get(run, 0)", "run.updated_at",
        "training/test_spent_by_what_is_read.py::"
        "test_steps_that_another_thread_takes_during_a_look_are_looked_at_by_the_next",
    ),
    mutation(
        15, "a full disk ends a block before what was spent in it is told", "training/state.py",
        "except (OSError, RuntimeError) as error:", "except ZeroDivisionError as error:",
        "training/test_spent_by_what_is_read.py::"
        "test_a_block_tells_what_was_spent_although_the_disk_is_full",
    ),
    mutation(
        15, "a step is taken before the file holds that more may have been spent",
        "training/state.py", " + len(each.entries) + each.prior_spend_unknown", "",
        "training/test_spent_by_what_is_read.py::"
        "test_no_step_is_taken_until_the_file_holds_what_a_block_has_told",
    ),
    mutation(
        15, "what is gone is looked at in the graph that is being traced", "spending/looks.py",
        "    with tf.init_scope():\n        changed", "    if True:\n        changed",
        "training/test_spent_by_what_is_read.py::"
        "test_a_graph_is_traced_after_an_optimizer_that_another_one_has_used_is_gone",
    ),
    mutation(
        13, "the weights of a step that its graph refuses decay", "training/trainer.py",
        "tf.control_dependencies(gradients):", "tf.control_dependencies([]):",
        "training/test_budget.py::"
        "test_a_graph_changes_weights_only_after_it_has_checked_that_the_step_is_allowed",
    ),
    mutation(
        12, "a metric may change the rate when it is reset", "training/metrics.py",
        "    if changed:", "    if False:",
        "training/test_metrics_are_a_dead_end.py::"
        "test_a_metric_changes_no_rate_when_it_is_reset[rate-False-False]",
    ),
    mutation(
        12, "what a class leaves out of its metrics is not looked at", "training/metrics.py",
        "(*each.metrics, *keras.Model.metrics.fget(each))", "each.metrics",
        "training/test_metrics_are_a_dead_end.py::"
        "test_a_step_reads_no_metric_that_the_metrics_of_a_class_leave_out",
    ),
    mutation(
        15, "another Keras variable of the same value has a record of its own",
        "spending/shared.py",
        "return thing if len(holders) < 2 else next(iter(alive(holders)))", "return thing",
        "training/test_spent_follows_variables.py::"
        "test_variables_that_share_a_value_have_spent_the_same[copied-False]",
    ),
    mutation(
        15, "what an optimizer makes of the variables of another model is known",
        "optimizers/finalized.py",
        "trained.issuperset(map(id, variables))", "True",
        "training/test_spent_by_updates.py::"
        "test_averages_that_an_optimizer_puts_into_another_model_are_not_known",
    ),
    mutation(
        15, "arrays that an optimizer takes for weights in the end are known",
        "optimizers/finalized.py",
        "and not _has_data(traced.graph)", "",
        "training/test_spent_by_updates.py::"
        "test_arrays_that_an_inner_optimizer_takes_for_weights_in_the_end_are_not_known[1.0]",
    ),
    mutation(
        15, "a worker keeps to itself what its steps have read",
        "training/worker_callbacks.py",
        "        share_ledgers(self.model, self._workers)", "        pass",
        "workers/test_behaviours.py::"
        "test_what_the_steps_of_one_worker_read_was_spent_for_all[constraint]",
    ),
    mutation(
        13, "a worker keeps to itself what its steps are going to read",
        "training/agreement.py",
        "ledger_with(model, reads), optimizer", "ledger_of(model), optimizer",
        "workers/test_behaviours.py::"
        "test_a_target_has_room_for_what_the_steps_of_any_worker_read",
    ),
    mutation(
        16, "the seeds of the layers count what metrics drew",
        "training/metrics.py",
        "        state.assign(value)", "        pass",
        "tracing/test_random_ops.py::"
        "test_no_state_that_is_saved_tells_how_often_metrics_drew[None-of the model]",
    ),
    mutation(
        12, "metrics of inner models are not looked at",
        "training/metrics.py",
        "for layer in layers_of(model) if isinstance(layer, keras.Model)", "for layer in [model]",
        "training/test_metrics_are_a_dead_end.py::"
        "test_a_step_reads_no_metric_of_an_inner_model",
    ),
    mutation(
        13, "noise is calibrated before the history of what is read is looked at",
        "training/start_run.py",
        "    refuse_history(spent, sampling, optimizer.accountant, ledger)\n", "",
        "training/test_refused_history.py::"
        "test_a_student_with_a_target_is_told_of_the_unit_and_not_of_its_target",
    ),
]  # fmt: skip
