"""Decides what to do with each directory: proposals, guards, plans, the delete queue, the blast radius. Pure."""
