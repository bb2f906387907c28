"""Checks of the wire that hold for any server: they need a `target` fixture (target.py) and are
collected where a test module imports them, over the scripted engine and over the real one."""
