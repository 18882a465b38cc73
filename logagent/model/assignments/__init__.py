"""Which replicas the cluster has, and what that means for each directory."""
