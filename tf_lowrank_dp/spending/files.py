"""Which models note their steps in a ledger file, before these are taken."""

from __future__ import annotations

import os
import weakref
from collections.abc import MutableMapping, Sequence

import keras

from tf_lowrank_dp.accounting import LedgerFile, PrivacyLedger, open_ledger_file
from tf_lowrank_dp.spending.owner import SPENDING
from tf_lowrank_dp.spending.trace import Thing, refuse_unbuilt

_FILES: MutableMapping[keras.Model, LedgerFile] = weakref.WeakKeyDictionary()


def file_of(model: keras.Model) -> LedgerFile | None:
    """Where the steps of a model are noted before they are taken, if anywhere."""
    return _FILES.get(model)


def open_file(model: keras.Model, path: str | os.PathLike, things: Sequence[Thing]) -> None:
    """Opens a ledger file for a model: each holds what the other knows from then on.

    Args:
        model: the model.
        path: see `open_ledger_file`.
        things: the model with all that it is made of.

    Raises:
        ValueError: see `Spending.add` and `open_ledger_file`; or the file holds something, and the
            model is not built.
    """
    file = open_ledger_file(path)
    if file.ledger != PrivacyLedger():
        refuse_unbuilt(model)
    SPENDING.add(things, file.ledger)
    file.add(SPENDING.ledger(things))
    _FILES[model] = file
