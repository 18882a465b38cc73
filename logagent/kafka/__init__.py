"""What Kafka wrote and answers, as plain values. The folders in it read; what is in this one decides nothing."""
