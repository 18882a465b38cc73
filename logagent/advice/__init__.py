"""What only looks and explains: `scan`, `explain`, `check`, `assignments`."""
