"""The native step: C++ built for this machine, its weights in blocks of 4 and 8 bits."""
