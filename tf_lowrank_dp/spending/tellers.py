"""Who knows what becomes of values while it lasts, and is asked before anybody looks at them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Tellers:
    """Blocks of code that state what values inside of them are made of.

    Formal guarantee: whatever is asked for inside of a block, such as a ledger or a file, holds
    what the block would state if it ended then.
    """

    def __init__(self) -> None:
        self._tellers: list[Callable[[], None]] = []
        self._asking = threading.local()

    @contextlib.contextmanager
    def inside(self, tell: Callable[[], None]) -> Iterator[None]:
        """Context in which `tell` is called before anything is looked at, and when it ends.

        Args:
            tell: states what has become of values since it was called; it may look as well.
        """
        self._tellers.append(tell)
        try:
            yield
        finally:
            self._tellers.remove(tell)
            tell()

    def ask(self) -> None:
        """Calls those of all blocks, as often as one may tell of what another one does."""
        if getattr(self._asking, "now", False):
            return
        self._asking.now = True
        try:
            for _ in self._tellers[:]:
                for tell in self._tellers[:]:
                    tell()
        finally:
            self._asking.now = False
