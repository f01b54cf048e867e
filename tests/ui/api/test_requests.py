"""/requests and /schedule of a server that other machines can reach."""

import pytest
from gradio_client.exceptions import AppError

from tests.ui.api.sites import Site
from tests.ui.fakes import endless, request


def test_off_loopback_others_requests_have_no_id(elsewhere: Site) -> None:
    elsewhere.worker.set_script(endless, slowdown=20.0)
    elsewhere.context.hub.start(request("the secret of another"), "other")
    (run,) = elsewhere("/requests")["runs"]
    assert run["run_id"] is None and run["own"] is False and run["max_tokens"] > 0
    with pytest.raises(
        AppError, match="only on a server with --auth, or if only the server's machine"
    ):
        elsewhere("/schedule", name="shared")
    assert elsewhere("/schedule")["schedule"] == "each"
    elsewhere.clear()
