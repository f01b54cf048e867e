"""An LLM over ranks: one process a rank, each with its part of the weights and of the KV cache."""
