"""The names of the SSMs that come with SpecScope: for the bundled LLM, and for SmolLM2."""

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
SMOLLM2_SSMS = ("ssm-chat", "ssm-code", "ssm-facts", "ssm-text")
