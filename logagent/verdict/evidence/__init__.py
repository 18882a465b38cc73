"""What verdicts are based on: the sources of assignments, which broker answers, unknown topic ids, and questions about
strays."""
