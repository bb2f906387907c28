"""Long runs against damaged input: `make soak`."""
