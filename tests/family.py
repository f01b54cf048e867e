"""The bundled SSMs by name, as the page and the engine are expected to find them."""

from __future__ import annotations

__all__ = ["SSMS"]

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
