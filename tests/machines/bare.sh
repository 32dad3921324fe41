#!/usr/bin/env bash
# Run a command of make as on a machine that has Python, pip, make, and nothing else.
#
#     tests/machines/bare.sh COMMAND...     such as: make test
#
# An empty home and empty caches; no data sets, no browser, no compiler for GPUs, no
# environment: for the time of the command they are hidden under mounts of its own,
# which needs root. `.venv` is hidden, too, and thrown away, unless KEEP_VENV is set.
set -euo pipefail
cd "$(dirname "$0")/../.."

empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
mkdir "$empty/home" "$empty/tmp"

mkdir -p .venv
unshare --mount --pid --fork --kill-child --mount-proc bash -euc '
  empty=$1
  shift
  for folder in /usr/share/datasets .venv-gpu-compiler .venv-litert .venv-prepare .data runs; do
    [[ ! -d $folder ]] || mount -t tmpfs tmpfs "$folder"
  done
  if [[ -z ${KEEP_VENV:-} ]]; then
    mkdir "$empty/venv"
    mount --bind "$empty/venv" .venv
  fi
  for browser in chromium chromium-browser google-chrome; do
    place=$(command -v $browser) || continue
    mount --bind /dev/null "$(readlink -f "$place")"
  done
  export HOME=$empty/home TMPDIR=$empty/tmp
  unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME TFDS_DATA_DIR HF_HOME XLA_FLAGS
  "$@"
' bash "$empty" "$@"
