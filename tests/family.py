"""The names of the SSMs that come with SpecScope."""

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
SMOLLM2_SSMS = ("ssm-chat", "ssm-code", "ssm-facts", "ssm-text")
