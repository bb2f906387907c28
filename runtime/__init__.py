"""The engine: scheduler, page pool, model runner, sampler. Knows tokens, not text."""
