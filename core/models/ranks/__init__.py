"""An LLM over ranks: each rank is a process with a part of the weights and of the KV cache."""
