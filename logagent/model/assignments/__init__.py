"""Which replicas the cluster has, and what that says about each directory."""
