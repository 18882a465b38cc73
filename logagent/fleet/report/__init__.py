"""The report: usage, orphans, missing replicas, leftovers, health, growth."""
