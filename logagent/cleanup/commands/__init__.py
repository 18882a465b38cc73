"""The commands that mark, remove and show what was done, and their documents."""
