"""llama.cpp as an optional baseline; needs the packages llama-cpp-python and gguf."""
