"""llama.cpp as an optional baseline, if the package llama-cpp-python is installed."""
