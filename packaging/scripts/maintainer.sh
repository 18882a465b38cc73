# What the maintainer scripts of both kinds of package share.
RECORD=/run/logagent-upgrade
booted() { [ -d /run/systemd/system ]; }

invoke() {
    # deb-systemd-invoke asks policy-rc.d, where an image builder has forbidden starting anything.
    if command -v deb-systemd-invoke >/dev/null; then deb-systemd-invoke "$@" >/dev/null; else systemctl "$@"; fi
}

our_units() {
    systemctl list-units --plain --no-legend --full --state=active,activating,reloading,deactivating \
        logagent.service 'logagent@*.service' | cut -d' ' -f1
}

# The daemon imports modules when it needs them first: it must not meet those of another version, so it is stopped
# before the files change and started after. It leaves a removal between two files and goes on with it.
stop_for_upgrade() {
    booted || return 0
    our_units >$RECORD
    units=$(cat $RECORD)
    [ -z "$units" ] || invoke stop $units
}

start_again() {
    [ -e $RECORD ] || return 1
    units=$(cat $RECORD)
    rm -f $RECORD
    booted || return 0
    [ -z "$units" ] || invoke start $units || echo "logagent: not started again; see journalctl -u logagent" >&2
}

# Each /etc/logagent/NAME.toml is an instance.
instances() {
    for config in /etc/logagent/*.toml; do
        name=${config##*/}
        name=${name%.toml}
        case $name in
            logagent | *[!A-Za-z0-9_.-]*) continue ;;
        esac
        [ ! -e "$config" ] || echo "$name"
    done
}

# The state dirs of logagent.service and its instances; no other directory of such a name is ours, and no symlink.
state_dirs() {
    for state in /var/lib/logagent $(instances | sed 's|^|/var/lib/logagent-|'); do
        if [ -d "$state" ] && [ ! -h "$state" ]; then echo "$state"; fi
    done
}

# The schema of a journal is in the header of its file (SQLite's user_version).
refuse_newer_journal() {
    for state in $(state_dirs); do
        journal=$state/journal.db
        { [ -f "$journal" ] && [ ! -h "$journal" ] && [ -s "$journal" ]; } || continue
        schema=$(timeout 10 od -An -tu1 -j60 -N4 "$journal" | awk '{ print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }')
        if [ "${schema:-0}" -gt @JOURNAL_SCHEMA@ ]; then
            echo "logagent: $journal was written by a newer logagent (journal schema $schema; this one knows @JOURNAL_SCHEMA@)" >&2
            if [ -f "$state.before/journal.db" ]; then
                echo "  Keep the newer version, or go back to the copy from before its upgrade: $state.before" >&2
                echo "  mv $state $state.newer && cp -a $state.before $state" >&2
            else
                echo "  Keep the newer version. There is no copy from before its upgrade ($state.before): without the journal" \
                    "its undo information is lost." >&2
            fi
            exit 1
        fi
    done
}

add_user() {
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers logagent.conf
    elif ! getent passwd kafka >/dev/null; then
        getent group kafka >/dev/null || groupadd --system kafka
        useradd --system --gid kafka --home-dir /var/lib/kafka --no-create-home --shell /usr/sbin/nologin \
            --comment "Apache Kafka" kafka
    fi
}

forget_compiled() {
    find /usr/lib/logagent -depth -type d -name __pycache__ -exec rm -rf {} +
}

# The service cannot write to /usr; without this every start would compile everything.
compile() {
    forget_compiled
    for minor in 11 12 13 14; do
        [ -x /usr/bin/python3.$minor ] || continue
        /usr/bin/python3.$minor -I -S -m compileall -q /usr/lib/logagent/lib /usr/lib/logagent/cp3$minor \
            || echo "logagent: not compiled for Python 3.$minor; it starts more slowly" >&2
    done
}

# Nothing is set up by an installation: what decides as whom a service runs is asked for by an operator, and shown.
say_how_to_set_up() {
    drop_in=/etc/systemd/system/logagent.service.d
    if [ -e $drop_in ]; then
        # As an older version set it up: the daemon found the broker by itself.
        grep -qsE -e 'LOGAGENT_KAFKA__CONFIG|EnvironmentFile|--kafka-config|--log-dir' $drop_in/*.conf && return 0
        grep -qsE '^ *(kafka\.)?config *=' /etc/logagent/logagent.toml && return 0
        echo "logagent: nothing names the broker to logagent.service, so it does not start; check what \`logagent setup\` shows, then:" >&2
        echo "  logagent setup --execute" >&2
        return 0
    fi
    echo "logagent: to set up the service for this host's broker, check what \`logagent setup\` shows, then:" >&2
    echo "  logagent setup --execute" >&2
}

# After an upgrade: a setting that is gone is said now, not by a service that is down. Only of configurations that are
# there, and never a reason to fail: whether a broker is found depends on what runs.
say_what_is_wrong() {
    [ ! -e /etc/logagent/logagent.toml ] || check_config /etc/logagent/logagent.toml
    for name in $(instances); do check_config "/etc/logagent/$name.toml"; done
}

check_config() {
    why=$(timeout 30 logagent config check --config "$1" 2>&1) || echo "logagent: $1: $why" >&2
}

reload_systemd() {
    if booted; then systemctl daemon-reload || true; fi
}
