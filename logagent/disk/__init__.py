"""The only room that changes a log dir: opened once, called with a time limit, scanned, probed, removed from."""
