"""Why bytes are still on the disks of a host, by what its log dirs and its metadata log say."""
