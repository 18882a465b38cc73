"""One inventory of one broker's log dirs, and everything that a command or a cycle decides on it."""
