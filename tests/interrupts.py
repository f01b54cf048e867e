"""Lets a child process handle SIGINT."""

import signal


def hear_interrupts() -> None:
    """For `preexec_fn`. Programs that a shell starts in the background ignore SIGINT, and so would
    their child processes."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
