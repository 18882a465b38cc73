"""Sets up and starts the service for this host's broker (`logagent setup`)."""
