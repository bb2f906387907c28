"""Spans, metrics and their names. Imported by gateway and runtime, imports neither."""
