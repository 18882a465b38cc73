"""Linux itself: mounts, `/proc`, access rights, child processes, the state dir."""
