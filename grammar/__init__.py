"""From a constraint to a token mask: specs, coverage, engines and their matchers."""
