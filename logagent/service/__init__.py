"""What runs on a host and surrounds it: daemon, `prestart`, `setup`, `doctor`, `status`, metrics, publishing."""
