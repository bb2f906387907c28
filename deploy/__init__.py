"""What the stack of compose.yaml is made of, and the programs that make parts of it."""
