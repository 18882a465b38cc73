#!/bin/sh
# Starts logagent with a Python of this host that it is made for: the distribution's own if it is one of them, else the
# newest. -I and -S: nothing from the environment, the working directory or site-packages can get into it.
self=$(readlink -f "$0")
start=${self%/bin/logagent}/lib/logagent/start.py
for python in /usr/bin/python3 /usr/bin/python3.14 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
    [ -x "$python" ] || continue
    case $(readlink -f "$python") in
        */python3.11 | */python3.12 | */python3.13 | */python3.14) exec "$python" -I -S "$start" "$@" ;;
    esac
done
echo "logagent: no Python 3.11, 3.12, 3.13 or 3.14 in /usr/bin" >&2
echo "  hint: install one (on RHEL 9: dnf install python3.11)" >&2
exit 78
