"""`python -m core.models.ranks`: one rank of an LLM; see `follower`."""

import os
import sys

from core.errors import ConfigError, RankError
from core.models.ranks.follower import follow

if __name__ == "__main__":
    try:
        code = follow()
    except (ConfigError, RankError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    sys.stdout.flush()
    # Threads of a broken process group may not end.
    os._exit(code)
