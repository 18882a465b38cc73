"""What Kafka's retention deletes of a log, when, and by which setting. Pure: decides from what was read."""
