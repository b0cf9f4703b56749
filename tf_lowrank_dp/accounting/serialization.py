"""A ledger as versioned JSON text with a checksum."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Iterable
from typing import Any

from tf_lowrank_dp.accounting.event_text import event_from_dict, event_to_dict
from tf_lowrank_dp.accounting.ledger_entry import Entry, LedgerEntry
from tf_lowrank_dp.accounting.release_entry import ReleaseEntry
from tf_lowrank_dp.accounting.sampling import Sampling

_FORMAT = "tf_lowrank_dp.privacy_ledger"
_VERSION = 1
_CHECKSUM = "crc32"


def dumps(entries: Iterable[Entry], prior_spend_unknown: bool) -> str:
    """The content of a ledger as text for `loads`.

    Args:
        entries: the entries.
        prior_spend_unknown: whether there may be releases that are not recorded.

    Example:

    >>> loads(dumps([], prior_spend_unknown=True))
    ([], True)
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "prior_spend_unknown": prior_spend_unknown,
        "entries": [_entry_to_dict(entry) for entry in entries],
    }
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, allow_nan=False)


def loads(text: str) -> tuple[list[Entry], bool]:
    """What was given to `dumps`: the entries and the flag.

    Args:
        text: the text.

    Raises:
        ValueError: the text is no ledger, is damaged, or comes from a later version.

    Example:

    >>> loads("[]")
    Traceback (most recent call last):
        ...
    ValueError: Expected the text of a privacy ledger. Received: JSON that is no ledger. \
Restore it from a backup; without it the prior spend is unknown.
    """
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise _corrupted("text that is no JSON") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _corrupted("JSON that is no ledger")
    if content.get("version") != _VERSION:
        raise ValueError(
            f"Expected a privacy ledger of version {_VERSION}. "
            f"Received: version={content.get('version')!r}. Upgrade tf_lowrank_dp."
        )
    if content.pop(_CHECKSUM, None) != _checksum(content):
        raise _corrupted("a ledger that was changed or damaged: its checksum differs")
    unknown, entries = content.get("prior_spend_unknown"), content.get("entries")
    if not isinstance(unknown, bool) or not isinstance(entries, list):
        raise _corrupted("a ledger without entries or flag")
    try:
        loaded = [_entry_from_dict(entry) for entry in entries]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _corrupted(f"a damaged entry ({error})") from error
    if len({entry.entry_id for entry in loaded}) < len(loaded):
        raise _corrupted("two entries of one id")
    return loaded, unknown


def _entry_to_dict(entry: Entry) -> dict[str, Any]:
    """The entry as JSON values; an infinite clip norm becomes the text "inf"."""
    if isinstance(entry, ReleaseEntry):
        fields = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
        return {**fields, "event": event_to_dict(entry.event)}
    content = dataclasses.asdict(entry)
    if content["l2_norm_clip"] == math.inf:
        content["l2_norm_clip"] = "inf"
    return content


def _entry_from_dict(content: dict[str, Any]) -> Entry:
    """The entry that `_entry_to_dict` wrote."""
    if "event" in content:
        return ReleaseEntry(**{**content, "event": event_from_dict(content["event"])})
    content = {field.name: content[field.name] for field in dataclasses.fields(LedgerEntry)}
    if content["l2_norm_clip"] == "inf":
        content["l2_norm_clip"] = math.inf
    content["sampling"] = Sampling(**content["sampling"])
    return LedgerEntry(**content)


def _checksum(content: dict[str, Any]) -> int:
    """CRC-32 of the content without its checksum: it finds accidents, not forgeries."""
    return zlib.crc32(json.dumps(content).encode())


def _corrupted(what: str) -> ValueError:
    """The error of a text that is no ledger."""
    return ValueError(
        f"Expected the text of a privacy ledger. Received: {what}. "
        "Restore it from a backup; without it the prior spend is unknown."
    )
