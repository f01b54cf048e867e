"""A child process that handles SIGINT, however the tests were started."""

import signal


def hear_interrupts() -> None:
    """For `preexec_fn`. Tests that a shell starts in the background ignore SIGINT, as would their
    child processes: an interrupt that is sent to them would do nothing."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
