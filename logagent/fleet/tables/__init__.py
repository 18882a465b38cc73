"""The store's tables: schemas, rows, aggregates, and where they lie."""
