"""The daemon's Prometheus metrics: their names, their values, the HTTP server and the textfile."""
