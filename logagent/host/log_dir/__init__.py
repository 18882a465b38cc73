"""One log dir: opened once, called with a time limit, probed, marked offline."""
