"""The KRaft metadata log on this host's disk: record batches, decoders, replay."""
