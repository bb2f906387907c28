"""Functions that a model may call: what a request asks for, and what a model writes."""
