"""Cores and the runtime sequence as threads of which exactly one runs, so that every run goes the same way."""

from __future__ import annotations

import threading
from typing import Callable

from .errors import caller

_active = threading.local()


class Stopped(BaseException):
    """Ends a task whose machine has finished."""


class Task:
    """Something that runs until it has to wait."""

    def __init__(self, name: str, body: Callable[[], None], **context: object) -> None:
        self.name = name
        self.finished = False
        self.error: BaseException | None = None
        self.waits_for: Callable[[], bool] | None = None
        self.reason = ""
        self.place = ""
        self.operations = 0
        self.context = context
        self._body = body
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._stop = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._started = False

    def ready(self) -> bool:
        """Whether it can go on."""
        return not self.finished and (self.waits_for is None or self.waits_for())

    def run(self) -> None:
        """Lets it go on until it waits or ends; raises what it raised."""
        self.waits_for = None
        if not self._started:
            self._started = True
            self._thread.start()
        self._go.release()
        self._done.acquire()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Ends it where it waits."""
        if self._started and not self.finished:
            self._stop = True
            self._go.release()
            self._done.acquire()
        if self._started:
            self._thread.join()

    def wait(self, condition: Callable[[], bool], reason: str, place: str = "") -> None:
        """Called by the task itself: returns when `condition` holds."""
        self.operations += 1
        if condition():
            return
        self.place, self.reason, self.waits_for = place or caller(), reason, condition
        self._done.release()
        self._go.acquire()
        if self._stop:
            raise Stopped

    def _main(self) -> None:
        self._go.acquire()
        _active.task = self
        try:
            if not self._stop:
                self._body()
        except Stopped:
            pass
        except BaseException as error:  # Raised again by `run`, in the thread that asked.
            self.error = error
        self.finished = True
        self._done.release()


def current() -> Task | None:
    """The task whose code is running, or None outside of a simulation."""
    return getattr(_active, "task", None)
