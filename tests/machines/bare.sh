#!/usr/bin/env bash
# Run a command of make as a stranger to this machine would (as root).
#
#     tests/machines/bare.sh COMMAND...     such as: make train test
#
# The commit that is checked out is cloned, so that what is not committed is not tested,
# and the command runs in the clone, which is then thrown away. The place is unlike a
# developer's: an ordinary user, a long path with a space, an umlaut and `&`, umask 077,
# LANG=C, another time zone; an empty home, empty caches and an empty /dev/shm; no data
# sets, no browser. All of it are mounts of the command's own, which end with it.
# Nothing may stay in memory after the command. The limit of CPU time of a default test
# is higher: the first test that imports a library compiles it.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export place uid=54321
export clone="$place/Müller & Söhne, all that they have ever tried with images of their own and of others/jaxtrain"
export temporary="$place/ü &"
export home="$place/home"
mkdir -p "$clone" "$temporary" "$home"

# The checkout may belong to another user, as the clone does.
printf '[safe]\n  directory = *\n' > "$place/gitconfig"
commit=$(GIT_CONFIG_GLOBAL=$place/gitconfig git rev-parse HEAD)
(
  export GIT_CONFIG_GLOBAL=$place/gitconfig
  umask 077
  source=$PWD
  git init --quiet "$clone"
  cd "$clone"
  git fetch --quiet --depth 1 "$source" HEAD
  git checkout --quiet --detach "$commit"
)
chown -R $uid:$uid "$place"

unshare --mount --pid --fork --kill-child --mount-proc bash -euc '
  as_user=(setpriv --reuid=$uid --regid=$uid --clear-groups)
  cp /etc/passwd "$place/passwd"
  echo "stranger:x:$uid:$uid::$home:/bin/bash" >> "$place/passwd"
  mount --bind "$place/passwd" /etc/passwd
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  [[ ! -d /usr/share/datasets ]] || mount -t tmpfs tmpfs /usr/share/datasets
  for browser in chromium chromium-browser google-chrome; do
    program=$(command -v $browser) || continue
    mount --bind /dev/null "$(readlink -f "$program")"
  done

  # A Python in the home of root, as of pyenv, is all that others see of that home.
  python=$(python3 -c "import sys; print(sys.base_prefix)")
  if [[ $python == "$HOME"/* ]]; then
    mkdir "$place/python"
    mount --bind "$python" "$place/python"
    mount -t tmpfs -o mode=755 tmpfs "$HOME"
    mkdir -p "$python"
    mount --move "$place/python" "$python"
    PATH=$python/bin:$PATH
  fi

  # Of the environment, only where and by which certificates packages are found.
  for name in $(compgen -e); do
    case $name in
      PIP_* | *_CERT* | *_CA_* | *_proxy | *_PROXY | CI) kept+=("$name=${!name}") ;;
    esac
  done
  umask 077
  cd "$clone"
  status=0
  "${as_user[@]}" env -i "${kept[@]}" HOME="$home" TMPDIR="$temporary" PATH="$PATH" \
    USER=stranger LOGNAME=stranger SHELL=/bin/bash LANG=C TZ=Pacific/Chatham \
    JAXTRAIN_TEST_CPU_SECONDS=8 "$@" || status=$?
  left=$(find /dev/shm "$temporary" -mindepth 1)
  if [[ -n $left ]]; then
    printf "left in memory or in the folder of temporary files:\n%s\n" "$left" >&2
    ((status)) || status=1
  fi
  exit $status
' bash "$@"
