#!/bin/sh
# Sees to it that Debian packages are there: installs what is missing when it may, else says in one
# line what to install. What is there in another way (another distribution, a build of your own)
# counts. No service is started or left enabled by it.
#
#   .ci/system-packages.sh PACKAGE...
set -eu

program() { PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }
python() { "${PYTHON:-python3}" -c "$1" >/dev/null 2>&1; }

present() {
    case $1 in
    python3) program "${PYTHON:-python3}" ;;
    python3-venv) python 'import ensurepip, venv' ;;
    python3-dev) python 'import os, sysconfig as s; open(os.path.join(s.get_path("include"), "Python.h"))' ;;
    mariadb-server-core) program mariadbd && program mariadb-install-db ;;
    mariadb-client-core) program my_print_defaults ;;
    mariadb-client) program mariadb && program mariadb-dump ;;
    mariadb-server) present mariadb-server-core && ls /usr/lib/mysql/plugin/auth_ed25519.so >/dev/null 2>&1 ;;
    systemd) program systemd-analyze ;;
    libmariadb-dev) program mariadb_config || program mysql_config ;;
    libc6-dev) [ -e /usr/include/stdio.h ] ;;
    *) program "$1" ;; # a package that has a program of its name
    esac
}

missing=
for package in "$@"; do
    present "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! program apt-get; then
    echo "Please install what Debian calls:$missing" >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    sudo=
elif program sudo && sudo -n true 2>/dev/null; then
    sudo=sudo
else
    echo "Please run, then make again: sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

# Debian starts the services of a package it installs, unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '$sudo rm -f $policy' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
    $sudo chmod 755 $policy
fi
echo "installing:$missing"
$sudo apt-get -qq update
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq --yes --no-install-recommends -o Dpkg::Use-Pty=0 install $missing >/dev/null
for service in memcached mariadb prometheus; do
    case $missing in
    *"$service"*) if program systemctl; then $sudo systemctl --quiet disable "$service" || true; fi ;;
    esac
done
