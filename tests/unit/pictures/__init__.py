"""Tests of tests/pictures."""
