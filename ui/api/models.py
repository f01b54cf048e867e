"""The endpoints `/models` and `/load_models`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gradio as gr

from core.config.checks import choice
from core.errors import ConfigError
from ui.api.polling import poll
from ui.models_tab.offers import checked_pair, offers, offers_plain
from ui.models_tab.values import NOT_YOURS
from ui.server.context import Context
from ui.server.model_host import ModelHost
from ui.server.model_swap import CANCELLED

__all__ = ["ENDPOINTS"]


def _models(context: Context) -> Callable[..., Any]:
    def models(
        gradio_request: gr.Request, dtype: str = "auto", device: str = "auto"
    ) -> dict[str, Any]:
        """The `loaded` models, the `offers` of models that can be loaded, with their memory as
        `dtype` on `device`, and the `free_bytes` of that device (null if the system does not report
        them).

        Bytes are those of the weights, 0 where unknown. Folders and the local cache are listed only
        to those who may load.
        """
        from core.models.loading.placing import DEVICES, DTYPES

        choice("dtype", dtype, ("auto", *DTYPES))
        choice("device", device, DEVICES)
        allowed = context.access.may_change(gradio_request)
        available, memory = offers(context.model_host, dtype, device, allowed)
        return {
            "loaded": loaded_plain(context.model_host),
            "offers": offers_plain(available),
            "free_bytes": memory.free,
        }

    return models


def loaded_plain(model_host: ModelHost) -> list[dict[str, Any]]:
    """The loaded models, the LLM first."""
    return [dataclasses.asdict(info) for info in model_host.infos]


def _load_models(context: Context) -> Callable[..., Any]:
    async def load_models(
        gradio_request: gr.Request,
        llm: str,
        ssms: list[str] | None = None,
        dtype: str = "auto",
        device: str = "auto",
    ) -> dict[str, Any]:
        """Load another LLM and its SSMs (bundled, smollm2, folders, GGUF files or hub ids), for
        everybody; returns the `loaded` models once that is done. Runs go on meanwhile; if the pair
        cannot be loaded, the old one stays. Allowed on a server with a login, or if only its
        machine reaches it, without a proxy.
        """
        if not context.access.may_change(gradio_request):
            raise ConfigError(NOT_YOURS)
        pair = checked_pair(llm, [] if ssms is None else ssms, dtype, device)
        context.model_host.begin(pair)
        await wait_for_load(context.model_host)
        return {"loaded": loaded_plain(context.model_host)}

    return load_models


async def wait_for_load(model_host: ModelHost) -> None:
    """Waits until loading has ended. Raises ConfigError if loading fails or is cancelled."""
    await poll(lambda: not model_host.swap.is_loading, model_host.cancel)
    swap = model_host.swap
    if swap.state == CANCELLED:
        raise ConfigError("loading was given up: the models that were loaded stay")
    if swap.reason:
        raise ConfigError(swap.reason)


ENDPOINTS = (_models, _load_models)
