"""What can be learned from a broker's process: its `.lock`, its command line, its version."""
