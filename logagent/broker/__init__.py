"""Reads what the broker wrote, holds and answers; decides nothing."""
