"""What a running daemon reports about itself: the document, and the socket that serves it."""
