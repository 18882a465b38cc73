"""The journal in the state dir, its reserve, and who may act."""
