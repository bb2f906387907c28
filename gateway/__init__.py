"""HTTP and everything that is text: validation, templates, tokens to text, server-sent events."""
