"""What the `topics` commands share: opening store, key and cluster; reading a report; showing requests."""
