"""llama.cpp as a contestant, where the package llama-cpp-python is installed; never needed."""
