"""The files that a broker writes or is configured with: properties, checkpoints, `partition.metadata`, segments."""
