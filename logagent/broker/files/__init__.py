"""The files that a broker writes or is configured by: properties, checkpoints, `partition.metadata`."""
