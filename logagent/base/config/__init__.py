"""Settings, with their defaults, and the file and environment that they are read from."""
