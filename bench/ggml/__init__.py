"""llama.cpp as an optional contestant, if the package llama-cpp-python is installed."""
