"""What others read of logagent, frozen: `python -m tests.frozen` runs commands of a checkout on scratch hosts made of
real brokers' disks, writes what came out as masked text, and compares two such states. `python -m tests.frozen.figures`
counts files, lines and what a refactoring wants to see shrink.

Nothing here imports logagent: the code under comparison is another checkout's, and is only run.
"""
