"""From what was seen of a host to what works, what does not yet, and the line to change."""
