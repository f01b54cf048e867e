"""The names of the SSMs that come with SpecScope, which the page and the engine are expected to
find."""

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
SMOLLM2_SSMS = ("ssm-chat", "ssm-code", "ssm-facts", "ssm-text")
