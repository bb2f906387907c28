"""From a JSON Schema to a grammar of its compact JSON texts."""
