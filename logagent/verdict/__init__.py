"""Whose is a directory, who says so, and what covers it. Pure; `verdict.evidence` gathers what it decides on."""
