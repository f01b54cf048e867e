"""The bundled SSMs by name, as the page and the engine are expected to find them."""

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
