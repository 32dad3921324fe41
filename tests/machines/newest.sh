#!/usr/bin/env bash
# Run a command of make where Python and JAX are the newest: Debian's own, in a folder.
#
#     tests/machines/newest.sh COMMAND...     such as: make train
#
# The folder is made once (.newest, by debootstrap, as root; NEWEST says another place).
# The commit that is checked out is cloned into it, so that what is not committed is not
# tested. Its environment and its compiled programs stay for the next command.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=${NEWEST:-$PWD/.newest}
suite=trixie
mirror=${DEBIAN_MIRROR:-}

if [[ ! -f $place/.made ]]; then
  if ! command -v debootstrap > /dev/null; then
    apt-get update -q
    apt-get install -y -q debootstrap
  fi
  rm -rf "$place"
  debootstrap --variant=minbase \
    --include=python3,python3-venv,make,git,gcc,g++,ca-certificates \
    $suite "$place" $mirror > "$place.log" || { tail "$place.log"; exit 1; }
  rm "$place.log"
  touch "$place/.made"
fi

# The network as it is here: names, and the authorities that the clients trust.
cp /etc/resolv.conf "$place/etc/resolv.conf"
echo "127.0.0.1 localhost $(hostname)" > "$place/etc/hosts"
mkdir -p "$place/etc/ssl/certs"
if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
  cp /etc/ssl/certs/ca-certificates.crt "$place/etc/ssl/certs/"
fi

# The commit, over what `make` has left there.
mkdir -p "$place/srv/home"
clone=$place/srv/jaxtrain
[[ -d $clone ]] || git clone --quiet --no-checkout . "$clone"
git -C "$clone" fetch --quiet --update-head-ok --force "$PWD" HEAD
git -C "$clone" checkout --quiet --force --detach FETCH_HEAD

# Mounts of its own end with the command. Of the environment, only where and by which
# certificates packages are found.
exec unshare --mount --pid --fork --kill-child -- bash -euc '
  mount --bind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/dev/shm"
  mount -t proc proc "$1/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
  for name in $(compgen -e); do
    case $name in
      PIP_* | *_CERT* | *_CA_* | *_proxy | *_PROXY | CI | TFDS_DATA_DIR) ;;
      *) unset "$name" ;;
    esac
  done
  # What NNX is about to drop fails here: updates of graphs.
  export NNX_GRAPH_MODE=false NNX_GRAPH_UPDATES=false
  export HOME=/srv/home LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  place=$1
  shift
  exec chroot "$place" bash -euc "cd /srv/jaxtrain; \"\$@\"" bash "$@"
' bash "$place" "$@"
