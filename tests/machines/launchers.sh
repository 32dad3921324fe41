#!/usr/bin/env bash
# Train under SLURM and under Open MPI, with signals, kills and resumption (as root).
#
#     tests/machines/launchers.sh     needs the packages slurm-wlm, munge and openmpi-bin
#
# SLURM has two nodes, which are two daemons on this machine; all daemons end with the
# script. A job of deploy/slurm.sbatch receives SIGTERM, as at its time limit, and later
# one of its two processes is killed: SLURM requeues it both times, and its metrics must
# equal those of an undisturbed job. `make .venv/.installed` comes before.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [[ -z ${LAUNCHERS_PLACE:-} ]]; then
  LAUNCHERS_PLACE=$(mktemp -d)
  trap 'rm -rf "$LAUNCHERS_PLACE"' EXIT
  export LAUNCHERS_PLACE
  unshare --mount --pid --fork --kill-child --mount-proc "$0"
  exit
fi

place=$LAUNCHERS_PLACE
export PYTHON=$PWD/.venv/bin/python SLURM_CONF=$place/slurm.conf
for name in state n1 n2 runs; do mkdir "$place/$name"; done
chmod 755 "$place"
config=(--config configs/digits.py --train.epochs 40)

fail() {
  echo "$*" >&2
  tail -n 30 "$place"/*.out >&2
  exit 1
}

# wait_for SECONDS COMMAND...
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || fail "in vain: $*"
    sleep 0.5
  done
}

start_slurm() {
  # Processes find each other by the names of their nodes.
  { cat /etc/hosts; echo 127.0.0.1 n1 n2; } > "$place/hosts"
  mount --bind "$place/hosts" /etc/hosts
  head -c 128 /dev/urandom > "$place/munge.key"
  chmod 600 "$place/munge.key"
  munged --force --key-file="$place/munge.key" --socket="$place/munge.socket" \
    --pid-file="$place/munge.pid" --log-file="$place/munge.log" \
    --seed-file="$place/munge.seed" 2> "$place/munge.out"
  # A requeued job waits for as long as a credential is valid.
  cat > "$SLURM_CONF" << END
ClusterName=jaxtrain
SlurmctldHost=localhost
SlurmUser=root
SlurmctldPort=17000
AuthInfo=socket=$place/munge.socket,cred_expire=10
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/%n
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/%n.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=n1 NodeHostname=localhost Port=17001 CPUs=1
NodeName=n2 NodeHostname=localhost Port=17002 CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES
END
  slurmctld -c
  slurmd -N n1
  slurmd -N n2
  wait_for 30 both_idle
}

both_idle() { [[ $(sinfo --noheader --states=idle --format=%D) == 2 ]]; }

# submit NAME: the number of the job whose workdir and output have this name
submit() {
  sbatch --parsable --cpus-per-task=1 --gpus-per-node=0 --time=10 \
    --output="$place/$1.out" deploy/slurm.sbatch "${config[@]}" --workdir "$place/runs/$1"
}

# has_saved NAME STEP: whether a step beyond STEP is saved
has_saved() {
  local step
  for step in "$place/runs/$1/checkpoints"/*; do
    [[ ${step##*/} =~ ^[0-9]+$ ]] && ((${step##*/} > $2)) && return
  done
  return 1
}

is_state() { [[ $(scontrol show job "$1") == *"JobState=$2 "* ]]; }
restarted() { [[ $(scontrol show job "$1") == *" Restarts=$2 "* ]]; }

# metrics NAME: all losses, without times
metrics() {
  "$PYTHON" - "$place/runs/$1/metrics.jsonl" << 'END'
import json, sys

for line in open(sys.argv[1]):
    values = json.loads(line)
    if "loss" in values:
        print(values["kind"], values["step"], values["loss"])
END
}

start_slurm
undisturbed=$(submit undisturbed)
wait_for 300 is_state "$undisturbed" COMPLETED

disturbed=$(submit disturbed)
wait_for 120 has_saved disturbed 0
scancel --signal=TERM "$disturbed"
wait_for 60 restarted "$disturbed" 1
grep -q "the same command resumes the run" "$place/disturbed.out" || fail "nothing saved"
wait_for 120 has_saved disturbed 399
# The pattern begins with Python, as srun's command also contains main.py.
pkill -KILL --oldest --full "^$PYTHON main.py .*runs/disturbed"
wait_for 90 restarted "$disturbed" 2
wait_for 300 is_state "$disturbed" COMPLETED
diff <(metrics undisturbed) <(metrics disturbed) || fail "other metrics"

# mpirun sends SIGTERM 5 seconds after it has received SIGTERM, and SIGKILL 5 later.
run_mpi() {
  exec mpirun --allow-run-as-root --oversubscribe --bind-to none \
    --mca odls_base_sigkill_timeout 5 -n 2 "$PYTHON" main.py "${config[@]}" \
    --workdir "$place/runs/mpi" > "$place/mpi.out" 2>&1
}
(run_mpi) &
wait_for 120 has_saved mpi 0
kill -TERM $!
! wait $! || fail "mpirun: exit code 0 after SIGTERM"
grep -q "the same command resumes the run" "$place/mpi.out" || fail "nothing saved"
(run_mpi) || fail "mpirun: exit code $?"
diff <(metrics undisturbed) <(metrics mpi) || fail "other metrics"
echo "SLURM and Open MPI: as if undisturbed"
