"""A thread that takes readings beside a measurement, never in its timed region."""

import threading
from collections.abc import Callable

from andrea_bench.hardware.readings import Readings

PERIOD_S = 0.1  # the driver's power and utilisation readings change no faster


class Sampler:
    """Calls `read` every `period_s` seconds from its own thread, from start() to stop().

    The first reading comes one period after the start, so that none shows the machine as it was before.
    `failure`: what ended the thread early, in words.
    """

    def __init__(self, read: Callable[[], Readings], period_s: float = PERIOD_S) -> None:
        self._read, self._period_s = read, period_s
        self._stopped = threading.Event()
        self._readings: list[Readings] = []
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Readings]:
        """End the thread and hand over its readings, in order of time."""
        self._stopped.set()
        # A driver that hangs must not hang the measurement; the thread is a daemon and ends with it.
        self._thread.join(timeout=5)
        if self._thread.is_alive():
            self.failure = "the driver did not answer for 5 s"
        return list(self._readings)

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            try:
                self._readings.append(self._read())
            except Exception as error:  # told in the record: counters must not end a measurement
                self.failure = f"{type(error).__name__}: {error}"
                return
