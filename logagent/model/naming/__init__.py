"""The names of directories and topics, as Kafka reads and writes them."""
