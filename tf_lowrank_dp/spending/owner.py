"""The one owner of what was spent: which runs the values of which variables depend on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.spending import looks, readers
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.spending.marks import forget, renew
from tf_lowrank_dp.spending.record import UNKNOWN, Record, Steps, merged
from tf_lowrank_dp.spending.tellers import Tellers
from tf_lowrank_dp.spending.trace import Thing, alive, variables_of
from tf_lowrank_dp.spending.traces import Traces
from tf_lowrank_dp.spending.values import KnownValues, stored_digests


class Spending:
    """Ledgers by variable: what was spent follows the values that private steps have updated.

    A *thing* is a variable, a model, a layer or an optimizer, known by identity for as long as it
    lives.  `SPENDING` is the one object of this class in a process.

    Formal guarantee (rule 15, the ledger only grows and follows the weights): at any time the
    ledger of a variable holds every release of this process that its value depends on through
    private steps, with all releases that values which they read depended on.

    Proof, by induction over what changes a value.  *A private step* of a run makes what it updates
    a function of its release and of what it reads.  `begin`, called before, has added to each
    updated thing the run, whose steps are read from the counter that the release itself increments,
    and the records of all that it reads; `read` adds those that its graph alone knows.  These grow
    by their own counters.  When what a run reads gains a record, it is noted with the steps of the
    run until its last update, or at the last look or block if these find it, and given to what the
    run updates as soon as somebody asks and there was another step, in a graph or not, and so on to
    who reads that; `version` changes, by which eager steps know that their budget has.  *A file
    with a ledger* brings values that depend on this ledger at most; `adopt` adds it to all that the
    optimizer is linked to: from the start the variables it is built with, and all of the model when
    that is first seen; and `recognise` to any variable that holds, when it is looked at, a value
    that the file says private steps have made.  *Keras' averages* of weights, by `SwapEMAWeights`
    or at the end of `fit`, are functions of values that share the records of the run, and so is
    what a user states to be (`post_processing`).  *Anything else* leaves a value that no digest
    knows, and the next look marks it, gone or not: more may have been spent.  `undone_on_error`
    alone takes a record away, whose caller gives the values back; entries and counters only grow.

    Not claimed: values of variables for which nothing is recorded are taken as public (statements
    say so), those of a file that are changed before anything looks at them among them; and what
    others change while steps are taken, between two looks, passes for theirs.
    """

    def __init__(self) -> None:
        self._traces = Traces()
        self._values = KnownValues()
        self.tellers = Tellers()

    @property
    def version(self) -> int:
        """Grows whenever a thing gains a record, or is due to as a graph has taken steps."""
        self._traces.count_what_was_read()
        return self._traces.version

    def records(self, things: Iterable[Thing]) -> frozenset[Record]:
        """Everything on record that any of the things depends on."""
        self._traces.count_what_was_read()
        return self._traces.records(things)

    def ledger(self, things: Iterable[Thing]) -> PrivacyLedger:
        """The union of what was spent on any of the things, with the steps as they are now."""
        return merged(self.records(things))

    def begin(
        self, run: Record, updated: Sequence[Thing], read: Iterable[Thing]
    ) -> frozenset[Record]:
        """States, before its first step, what a run is going to update and what it reads.

        Args:
            run: a run of this process.
            updated: things whose values its steps change.
            read: things whose values go into its steps.

        Returns:
            The other records that its next step depends on.
        """
        self._traces.begin(run, updated, read)
        records = self.records([*updated, *readers.read_by(self._traces, run)]) | {run}
        for thing in updated:
            self._traces[thing].runs |= {run}
        self._traces.attach(updated, records)
        return self.ahead(run) - {run}

    def read(self, run: Record, handles: Iterable[tf.Tensor], added: bool = False) -> None:
        """States that the steps of a run, which has begun, read these variables from now on.

        Args:
            run: the run.
            handles: of variables of any model, which may be trained, or leave the run's, later.
            added: whether what they read is added to released gradients.
        """
        if not (others := run.reading.add([*handles], added)):
            return
        records = self.records(readers.read_by(self._traces, run))
        records |= self._traces.left.records(others, run)
        self._traces.attach(alive(run.reading.updated), records)
        self._traces.tell_readers()
        # Not at its own values, which may be those between a release and its update.
        self._look_behind(variables_of(alive([*run.reading.updated, *run.reading.read])))

    def ahead(self, run: Record, handles: Sequence[tf.Tensor] = ()) -> frozenset[Record]:
        """What the next step of a run depends on, if it reads these variables as well."""
        self._traces.count_what_was_read()
        came = [came for _, came in self._values.behind(handles)]
        came.append(self._traces.left.records(handles, run))
        return readers.records_ahead(self._traces, run, handles).union(*came)

    def reads_without_record(self, run: Record) -> list[tf.Tensor]:
        """Handles of those, but for what is added to gradients, of which nothing is on record."""
        return readers.handles_without_record(self._traces, run)

    def look_at(self, values: Sequence[Thing], layers: Sequence[Thing] = ()) -> bool:
        """Looks at values, and at what goes into steps that made them, with runs in between.

        What others have changed there since the last look, a step since then may have read.

        Returns:
            Whether others than private steps are found to have changed some of the values.
        """
        before = readers.until_now(self._traces)  # other threads may go on
        found = self.check(values)
        for run in self._look_behind([*values, *layers]):
            run.reading.looked_at = before.get(run, 0)
        return found

    def _look_behind(self, known: list[Thing]) -> list[Record]:
        """Looks at what goes into steps that made things, but for these, and gives the runs."""
        runs = [*frozenset().union(*map(self._traces.runs_of, known))]
        for run in runs:
            for handle, came in self._values.behind(run.reading.handles_of_others()):
                self._traces.came(run, handle, came)
            known += (variables := readers.values_read_by(self._traces, run, without=known))
            self.recognise(variables)
            self.check(variables)
            looks.look_at_gone(self._traces, run)  # last: some may have gone since
            self.tell_layers(readers.known_only_to(self._traces, run))
            read = readers.read_by(self._traces, run)
            runs += readers.runs_behind(self._traces, run, read).difference(runs)
        return runs

    def link(self, optimizer: Thing, things: Iterable[Thing], loadable: Sequence = ()) -> None:
        """States that an optimizer keeps the ledger of these things, in files and from files.

        Args:
            optimizer: the optimizer; what was loaded with it belongs to all of them.
            things: what it updates, and all of the model when that is known.
            loadable: variables whose values a file may replace before the model is looked at.
        """
        self._traces.link(optimizer, things)
        for variable, digest in zip(loadable, digests(loadable), strict=True):
            self._traces[variable].latest = digest

    def adopt(
        self, things: Iterable[Thing], ledger: PrivacyLedger, values: np.ndarray | None = None
    ) -> None:
        """Adds a ledger that came with values of these things, and of those linked to them.

        Keras loads layers, with rare exceptions, before the optimizer that brings the ledger.  So
        a value that differs from the one before, or that private steps have made as the file says,
        is that of the file; another may still come, and is taken for it when it is looked at next.

        Args:
            things: what the ledger came with.
            ledger: what was spent.
            values: what `values_to_save` told of the values in the file.

        Raises:
            ValueError: it holds another run under a known id.  Nothing is added then.
        """
        things = [*things]
        things += [each for thing in things for each in alive(self._traces[thing].links)]
        record = self.add(things, ledger)
        if values is not None:
            self._values.add(values, record)
        for thing in things:
            forget(self._traces[thing])
        variables = variables_of(things)
        came = self._values.records(variables)
        for variable, records, digest in zip(variables, came, digests(variables), strict=True):
            if record in records or self._traces[variable].latest not in (None, digest):
                self._traces[variable].note(digest)
                renew(variable, self._traces[variable])

    def know(self, values: np.ndarray, record: Record) -> None:
        """Takes what `values_to_save` told of values in a file, whoever will hold them."""
        self._values.add(values, record)

    def recognise(self, variables: Iterable[Thing]) -> list[Thing]:
        """Adds to variables what any file says of the values that they hold, and gives these."""
        unseen = [v for v in variables if not self._values.of_size(v) <= self._traces.runs_of(v)]
        came = zip(unseen, self._values.records(unseen), strict=True)
        found = [(variable, records) for variable, records in came if records]
        for variable, records in found:
            self._traces.recognise(variable, records)
        return [variable for variable, _ in found]

    def tell_layers(self, things: Iterable[Thing]) -> None:
        """Adds to layers what is on record for their variables, which quantisation may replace."""
        for thing in things:
            self.see(self._traces.tell(thing))

    def values_to_save(self, optimizer: Thing, without: Iterable[Thing]) -> np.ndarray:
        """Digests of what an optimizer is linked to, made by private steps, but for `without`."""
        linked = self._traces.linked(optimizer, without)
        self.recognise(variables_of(linked))
        return stored_digests(self._traces.made_by_steps(linked))

    def mark_unknown(self, things: Iterable[Thing]) -> None:
        """States that more may have been spent on these things than is known.  It stays so."""
        self._traces.attach(things, frozenset({UNKNOWN}), readers.at_last_looks(self._traces))

    def check(self, variables: Iterable[Thing]) -> bool:
        """Marks those, if any, whose values are neither what private steps left nor were seen."""
        self.tellers.ask()
        with tf.init_scope():
            found = looks.by_others(self._traces, variables)
        self.mark_unknown(found)
        return bool(found)

    def hold(self, variables: Iterable[Thing]) -> None:
        """Keeps the values that a step has just left, without reading them, for the next look."""
        looks.hold_values(self._traces.known(variables))

    def let_go(self, variables: Iterable[Thing]) -> bool:
        """Whether nobody has changed what was held.  Steps update in place what is held no more."""
        return all([looks.let_go(*known) for known in self._traces.known(variables)])

    def remember(self, variables: Sequence[Thing]) -> None:
        """Knows these values if they are put back later.  `fit` leaves no marks of graphs."""
        looks.remember_values(self._traces, variables)

    def see(self, variables: Iterable[Thing]) -> None:
        """Takes the values of these variables as functions of what is on record for them."""
        with tf.init_scope():
            looks.note_values(self._traces, variables)

    def computed(self, variables: Iterable[Thing]) -> None:
        """States that what was added to these variables has made their values: files say so."""
        self._traces.computed(variables)

    def expect(self, variables: Iterable[Thing]) -> None:
        """Has updates in graphs compare with these values, which were looked at."""
        looks.expect_values(self._traces, variables)

    def compare_in_graph(self, variables: Sequence[Thing]) -> list[tf.Operation]:
        """Has a graph note, at each release and update, what others change from one to the next."""
        return looks.compare_values(self._traces, variables)

    def left_in_graph(self, variables: Iterable[Thing]) -> None:
        """Has a graph note what an update has left, so that a look tells what others change."""
        looks.mark_values(self._traces, variables)

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Forgets ledgers that this thread adds inside on an error; the caller restores values."""
        with self._values.undone_on_error(), self._traces.undone_on_error():
            yield

    def steps_of_runs(self, things: Iterable[Thing]) -> Steps:
        """The steps of all runs so far, for `add` of these things; notes which runs read them."""
        self._traces.watch(things)
        return readers.until_now(self._traces)

    def add(
        self,
        things: Sequence[Thing],
        ledger: PrivacyLedger,
        record: Record | None = None,
        since: Steps | None = None,
    ) -> Record:
        """Adds what was spent elsewhere, in a new record or in one of an earlier call, which grows.

        Args:
            things: whose values depend on it.
            ledger: what was spent.
            record: of an earlier call.
            since: what `steps_of_runs` gave when they may have begun to; None for now.

        Raises:
            ValueError: it holds another run under a known id.  Nothing is added then.
        """
        new = Record(ledger)
        merged(self.records(things) | {new})
        if record is not None:
            return self._traces.extend(record, ledger, things, since)
        self._traces.add(things, new, since)
        return new


SPENDING = Spending()
