#!/bin/bash
# Makes the system packages and the archive for spark-submit from a clean checkout:
#
#   packaging/build.sh [DIRECTORY]        default: dist/
#
# Needs Python 3.11 or later with venv, and PyPI. The same checkout gives the same bytes: everything that is taken from
# outside is pinned by hash (requirements.txt, build-requirements.txt), times are SOURCE_DATE_EPOCH (default: that of the
# last commit). RELEASE=2 builds the same version again as a newer package. MAINTAINER="NAME <ADDRESS>" and HOMEPAGE=URL
# name who answers for it; without them no address is in it. COMPRESSION=gzip and PAIRS=amd64:x86_64 make less, in a
# quarter of the time, for those who only look at it; KEPT=DIRECTORY keeps what comes from PyPI for the next build.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
out=${1:-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} \
    || { echo "no git checkout: say SOURCE_DATE_EPOCH" >&2; exit 2; }
export SOURCE_DATE_EPOCH

step() { echo "build.sh: $*" >&2; }

# The one place of the version.
VERSION=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' logagent/__init__.py)
RELEASE=${RELEASE:-1}
export VERSION RELEASE COMPRESSION="${COMPRESSION:-xz}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kept=${KEPT:-$work}
python=$kept/tools/bin/python
step "logagent $VERSION-$RELEASE into $out"
if [ ! -e "$kept/tools/whole" ]; then
    step "the tools, from PyPI"
    "${PYTHON:-python3}" -m venv "$kept/tools"
    "$python" -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r packaging/build-requirements.txt
    "$python" -m pip install -q --disable-pip-version-check --no-compile --require-hashes --only-binary :all: -r packaging/requirements.txt
    touch "$kept/tools/whole"
fi

export ARCH STAGING="$work/staging"
for pair in ${PAIRS:-amd64:x86_64 arm64:aarch64}; do
    ARCH=${pair%:*}
    rm -rf "$STAGING"
    mkdir "$STAGING"
    step "$ARCH: wheels, documentation, manual"
    "$python" packaging/tree.py "${pair#*:}" "$STAGING" "$kept/wheels"
    step "$ARCH: .deb and .rpm"
    # nfpm takes the modes of files from the disk, and its own times from SOURCE_DATE_EPOCH.
    "$kept/tools/bin/nfpm" package --config "$STAGING/nfpm.yaml" --packager deb --target "$out" >/dev/null &
    deb=$!
    "$kept/tools/bin/nfpm" package --config "$STAGING/nfpm.yaml" --packager rpm --target "$out" >/dev/null
    wait "$deb"
done

step "the archive for spark-submit"
"$python" packaging/spark_archive.py "$STAGING/usr/lib/logagent/lib" "$out/spark"
(cd "$out" && sha256sum ./*.deb ./*.rpm spark/* >SHA256SUMS)
step "made in $out:"
(cd "$out" && du -h --apparent-size ./*.deb ./*.rpm spark/* SHA256SUMS)
