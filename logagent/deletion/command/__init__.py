"""The `topics` commands, and what they share: opening store, key and cluster, making requests and showing them."""
