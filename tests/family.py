"""The SSMs that come with SpecScope by name, as the page and the engine are expected to find
them."""

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
SMOLLM2_SSMS = ("ssm-chat", "ssm-code", "ssm-facts", "ssm-text")
