"""What is in the log dirs: the scan, the inventory that remembers, and inotify."""
