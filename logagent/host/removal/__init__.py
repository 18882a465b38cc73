"""Removes one directory: unlink, truncate in steps, within a budget."""
