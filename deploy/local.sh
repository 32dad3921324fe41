#!/usr/bin/env bash
# Several processes of main.py on this machine, which meet over loopback:
#
#     deploy/local.sh N -- --config FILE [flags of main.py]
#
# Process 0 prints as it would alone; lines of the others begin with [1], [2], ...
# SIGINT, SIGTERM and SIGUSR1 are passed on. The exit code is that of the process that failed first.
# On GPUs process I takes GPU I; one process alone takes all GPUs of a machine.
set -u

if [[ $# -lt 3 || ! $1 =~ ^[1-9][0-9]*$ || $2 != -- ]]; then
  echo "usage: ${0##*/} N -- --config FILE [flags of main.py]" >&2
  exit 2
fi
num=$1
shift 2

# Seconds for the others to end once one has failed: longer than --heartbeat-timeout.
grace=40
main=$(dirname -- "$0")/../main.py
python=${PYTHON:-python3}
port=$("$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1])') || exit

# Each process gets a group of its own: Ctrl-C comes here alone, and is passed on once.
set -m
pids=()
start() {
  JAX_LOCAL_DEVICE_IDS=$1 "$python" "$main" "${@:2}" \
    --coordinator "127.0.0.1:$port" --num-processes "$num" --process-id "$1" &
  pids+=($!)
}
prefix() {
  trap '' INT TERM USR1
  exec sed -u "s/^/[$1] /"
}
pass_on() {
  kill -s "$1" -- "${pids[@]}" 2>/dev/null
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM
trap 'pass_on USR1' USR1

start 0 "$@"
for ((i = 1; i < num; i++)); do
  start "$i" "$@" > >(prefix "$i") 2> >(prefix "$i" >&2)
done

code=0 timer=
while ((${#pids[@]})); do
  ended=
  wait -n -p ended "${pids[@]}"
  status=$?
  [[ ${ended:-} ]] || continue # A signal came instead.
  for i in "${!pids[@]}"; do
    [[ ${pids[i]} == "$ended" ]] && unset "pids[i]"
  done
  if ((status && !code)); then
    code=$status
    (sleep "$grace" && pass_on TERM) &
    timer=$!
    disown
  fi
done
[[ $timer ]] && kill -- "-$timer" 2>/dev/null
exit "$code"
