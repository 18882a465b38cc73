"""From landing to the store's tables."""
