"""What is due and what was done: plans, guards, LogManager, journal; `cleanup`, `delete`, `restore`, `rescue`."""
