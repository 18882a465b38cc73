"""Decisions without effects: no file, clock, process or database is touched in here."""
