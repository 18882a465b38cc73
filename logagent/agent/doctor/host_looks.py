"""What doctor looks at of the host: our unit, the user it runs as and that user's rights, how things are mounted."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from logagent.agent.doctor.broker_looks import LOOK_SECONDS, user_name
from logagent.errors import UsageError
from logagent.host.brokers.systemd_units import read_unit, show_unit, systemd_runs
from logagent.host.linux.access import User, owner_of, user_named
from logagent.host.linux.child import Identity, ask_as, lacking
from logagent.host.linux.mounts import Mount, mount_of, mounts
from logagent.model.doctor.doctor_facts import (
    AccessLook,
    MountLook,
    Place,
    ProcLook,
    ServiceLook,
    SubjectLook,
)

_LISTS = ("TemporaryFileSystem", "Environment")


def look_at_service(unit: str, root: str = "/") -> ServiceLook | None:
    """Our unit: as the running systemd has it in force, else according to its files; None if there is none."""
    file = read_unit(unit, root)
    shown = show_unit(unit) if root == "/" and systemd_runs() else None
    user_line = file.last("User") if file is not None else None
    place = Place(user_line.file, user_line.line, user_line.value) if user_line is not None else None
    if shown is not None and shown.get("LoadState") == "loaded":
        pid = int(shown.get("MainPID", "0") or 0)
        return ServiceLook(
            unit=unit,
            known_by="systemd",
            user=shown.get("User") or None,
            file=shown.get("FragmentPath", ""),
            user_place=place,
            properties=shown,
            active=shown.get("ActiveState"),
            main_pid=pid or None,
        )
    if file is None:
        return None
    once = {key: lines[-1].value for key, lines in file.settings.items()}
    lists = {key: file.listed(key) for key in file.settings if key.endswith("Paths") or key in _LISTS}
    user = user_line.value if user_line is not None and user_line.value else None
    return ServiceLook(
        unit=unit, known_by="files", user=user, file=file.file, user_place=place, properties={**once, **lists}
    )


def service_state_dir(service: ServiceLook | None) -> str | None:
    """The state dir that the unit sets for its daemon: `--state-dir` of its command, else `StateDirectory=`."""
    if service is None:
        return None
    named = re.search(r"--state-dir[= ](\S+)", service.properties.get("ExecStart", ""))
    if named is not None:
        return named[1]
    made = service.properties.get("StateDirectory", "").split()
    return f"/var/lib/{made[0].split(':')[0]}" if made else None


def find_subject(
    named: str | None, service: ServiceLook | None, state_dir: str, log_dirs: Sequence[str]
) -> tuple[SubjectLook, Identity | None]:
    """Whose rights are checked, and the identity that a child needs for that (None: our own).

    The named user; else ourselves, unless we are root; as root the user of the unit, else the owner of the state dir or
    of a log dir, which is who a command that acts would become. Raises UsageError for a user that we cannot become.
    """
    me = os.geteuid()
    user = _subject(named, service, state_dir, log_dirs) if me == 0 or named is not None else None
    if user is None:
        how = (
            "the user who runs this command"
            if me != 0
            else "root: no unit, state dir or log dir points to another user"
        )
        serves = service is not None and (service.user or "root") in (user_name(me), str(me))
        return SubjectLook(name=user_name(me), uid=me, gid=os.getegid(), how=how, service=serves), None
    if me not in (0, user.uid):
        raise UsageError(f"--user: only root can check as user {user.name}", hint="run it as root or as that user")
    gid = _group(user, service)
    serves = service is not None and service.user in (user.name, str(user.uid))
    look = SubjectLook(name=user.name, uid=user.uid, gid=gid, how=user.known_by, service=serves)
    return look, Identity(user.uid, gid, tuple(sorted(user.gids))) if me != user.uid else None


def _subject(named: str | None, service: ServiceLook | None, state_dir: str, log_dirs: Sequence[str]) -> User | None:
    if named is not None:
        try:
            return _known(user_named(named), "--user")
        except LookupError as e:
            raise UsageError(f"--user: {e.args[0]}", hint="give its uid instead") from e
    if service is not None and service.user is not None:
        with suppress(LookupError):
            return _known(user_named(service.user), f"the user of {service.unit}")
    for place in (state_dir, *log_dirs):
        with suppress(OSError):
            found = os.stat(place)
            if found.st_uid != 0:
                return owner_of(found, place)
    return None


def _known(user: User, how: str) -> User:
    return User(user.uid, user.gids, user.privileged, user.name, how)


def _group(user: User, service: ServiceLook | None) -> int:
    import grp
    import pwd

    group = service.properties.get("Group", "") if service is not None and service.user == user.name else ""
    with suppress(KeyError):
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    with suppress(KeyError):
        return pwd.getpwuid(user.uid).pw_gid
    return min(user.gids, default=user.uid)


def look_at_access(path: str, what: str, wants: int, identity: Identity | None) -> AccessLook:
    """What `identity` may do with `path`; a hung disk blocks only a child."""
    write = bool(wants & os.W_OK)
    try:
        seen = ask_as(identity, lambda: lacking(path, wants), LOOK_SECONDS)
    except TimeoutError:
        return AccessLook(path=path, what=what, answered=False, write=write)
    except OSError as e:
        return AccessLook(path=path, what=what, lacks=f"every ({e})", at=path, write=write)
    if seen["lacks"] is None:
        return AccessLook(path=path, what=what, write=write)
    owner, mode = None, None
    with suppress(OSError):
        found = os.stat(seen["at"])
        owner, mode = user_name(found.st_uid), stat.S_IMODE(found.st_mode)
    return AccessLook(
        path=path,
        what=what,
        lacks=seen["lacks"],
        at=seen["at"],
        owner=owner,
        mode=mode,
        exists=seen["exists"],
        write=write,
    )


def look_at_mount(path: str, table: Iterable[Mount]) -> MountLook | None:
    mount = mount_of(os.path.realpath(path), table)
    if mount is None:
        return None
    device_ro = "ro" in mount.device_options
    return MountLook(
        point=mount.point,
        kind=mount.kind,
        source=mount.source,
        read_only="ro" in mount.options and not device_ro,
        device_read_only=device_ro,
    )


def mounts_or_none(process: int | str = "self") -> list[Mount]:
    try:
        return mounts(process)
    except OSError:
        return []


def look_at_proc(table: Iterable[Mount], identity: Identity | None, fstab: str = "/etc/fstab") -> ProcLook:
    """Whether `/proc` shows the agent's user every process."""
    import grp

    mount = mount_of("/proc", table)
    options = dict(o.partition("=")[::2] for o in mount.device_options | mount.options) if mount is not None else {}
    hidepid = options.get("hidepid")
    if hidepid in (None, "0", "off"):
        return ProcLook()
    gid = int(options.get("gid", "0"))
    groups = {os.getegid(), *os.getgroups()} if identity is None else {identity.gid, *identity.groups}
    group = None
    if gid:
        with suppress(KeyError):
            group = grp.getgrgid(gid).gr_name
    return ProcLook(hidepid=hidepid, gid=gid or None, group=group, exempt=gid in groups, fstab=_proc_line(fstab))


def _proc_line(fstab: str) -> Place | None:
    with suppress(OSError), open(fstab, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if len(words) > 3 and words[1] == "/proc" and not words[0].startswith("#"):
                return Place(fstab, number, line.strip())
    return None
