"""The state of the running daemon: the socket that answers, and `logagent status`."""
