"""`logagent demo`: the real commands on a temporary host that is made from the disk of a real broker."""
