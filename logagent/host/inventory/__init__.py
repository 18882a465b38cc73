"""What is in the log dirs: the scan, its inventory, and inotify."""
