"""The fleet store: what agents write and the fleet job reads."""
