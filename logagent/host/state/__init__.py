"""The state dir and the journal in it."""
