"""Makes a child process handle SIGINT, however the tests were started."""

import signal


def hear_interrupts() -> None:
    """For `preexec_fn`: restores the default handler of SIGINT. A shell lets programs that it
    starts in the background ignore SIGINT, and their child processes would ignore SIGINT too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
