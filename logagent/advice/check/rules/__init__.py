"""The rules of `check`. Pure: each finding follows from the facts of `start_facts`."""
