"""Linux itself: mounts, `/proc`, access rights, child processes, systemd's notifications."""
