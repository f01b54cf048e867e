"""A child process that handles SIGINT, however the tests were started."""

import signal


def hear_interrupts() -> None:
    """For `preexec_fn`: a test run in the background of a shell inherits SIGINT ignored, and so
    would its children; an interrupt sent to them would then do nothing."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
