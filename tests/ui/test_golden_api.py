"""What the endpoints answered before is what they answer now."""

from __future__ import annotations

import json

from tests.golden.api import FILE, api_answers
from tests.golden.differences import differences


def test_answers_of_the_endpoints() -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    found = list(differences(golden, json.loads(json.dumps(api_answers()))))
    assert not found, "\n".join(found[:5])
