"""The radix tree over token ids and the pages it owns. Plain Python over ints, no torch."""
