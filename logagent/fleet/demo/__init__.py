"""A made-up fleet with things wrong in it."""
