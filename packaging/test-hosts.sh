#!/bin/sh
# Tries the packages on clean hosts, all of it (needs root, mmdebstrap, systemd-container, Java; about an hour on two
# cores). Arguments choose a part: packaging/test-hosts.sh --help
cd "$(dirname "$0")/.." && exec .venv/bin/python -m tests.package.hosts "$@"
