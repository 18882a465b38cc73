"""A made-up fleet with planted problems."""
