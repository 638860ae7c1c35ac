"""llama.cpp with weights on this machine."""
