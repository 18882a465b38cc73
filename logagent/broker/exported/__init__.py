"""The assignments that `logagent assignments export` wrote."""
