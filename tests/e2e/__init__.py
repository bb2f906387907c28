"""A real server process on a real socket, and what clients and operators do with it."""
