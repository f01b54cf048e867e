"""`python -m core.models.ranks`: one rank of an LLM; see `follower`."""

import os
import sys

from core.models.ranks.follower import follow

if __name__ == "__main__":
    code = follow()
    sys.stdout.flush()
    # Threads of a broken process group may not end.
    os._exit(code)
