"""What to do with which directory: proposals, guards, plans, the delete queue, the blast radius."""
