"""The only place that touches the host's disks, processes and the journal."""
