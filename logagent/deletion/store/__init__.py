"""Requests, decisions and answers as the fleet store has them, signed."""
