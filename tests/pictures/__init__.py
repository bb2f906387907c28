"""Pictures of the documentation, made of what a server really exports."""
