"""What a broker's process tells: its `.lock`, its command line, its version."""
