"""`logagent demo`: the real commands on a temporary host made from a real broker's disk."""
