"""The socket that serves what a running daemon reports about itself."""
