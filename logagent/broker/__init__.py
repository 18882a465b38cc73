"""Reads what the broker writes, holds open and answers; decides nothing."""
