#!/bin/bash
# Runs a program on two ranks under the launchers that Debian and pip have (its
# own, torchrun, OpenMPI's and MPICH's mpirun, srun), the real ones, on this
# machine, and compares the losses in its metrics files. Equal: prints a table
# and exits with 0.
#
#   tools/check_launchers.sh [options] [-- ARGUMENTS OF THE PROGRAM]
#     --program FILE     what to run; not given: //tools:train, built here
#     --launchers LIST   which, with commas; not given: all, namely
#                        tandem,torchrun,mpirun,mpich,srun
#     --install          fetch what is missing: OpenMPI, MPICH, Slurm and munge
#                        (and Python's venv) with apt, which needs root; torch
#                        with pip into a virtual environment
#     --torch_dir DIR    that environment's place, kept for the next time; not
#                        given: ~/.cache/tandem/torchrun. Needs 5 GB there.
#     --capture DIR      instead: store each launcher's environment variables,
#                        names of hosts and users taken out, as DIR/*.env
#
# A Slurm of one node is set up on loopback in a temporary folder, with a munge
# of its own, and stopped at the end. It needs root.

set -euo pipefail

program=""
launchers="tandem,torchrun,mpirun,mpich,srun"
install=0
torch_dir="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tandem/torchrun"
capture=""
while (($#)); do
  case "$1" in
    --program) program="$2"; shift 2 ;;
    --launchers) launchers="$2"; shift 2 ;;
    --install) install=1; shift ;;
    --torch_dir) torch_dir="$2"; shift 2 ;;
    --capture) capture="$2"; shift 2 ;;
    --) shift; break ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
arguments=("$@")
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
work="$(mktemp -d -t tandem-launchers.XXXXXX)"
daemons=()

stop_slurm() {
  # A step that still reports its end would keep slurmd from ending.
  local deadline=$((SECONDS + 20))
  while [[ -n "$(timeout 5 squeue -h -t completing,running 2>/dev/null)" ]] &&
        ((SECONDS < deadline)); do sleep 0.2; done
}

cleanup() {
  local pid i
  [[ -z "${SLURM_CONF:-}" ]] || stop_slurm
  for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do  # slurmd before slurmctld
    pid="${daemons[i]}"
    kill "$pid" 2>/dev/null || continue
    timeout 10 tail --pid="$pid" -f /dev/null || kill -9 "$pid" || true
  done
  [[ -z "${SLURM_CONF:-}" ]] || pkill_steps
  rm -rf "$work"
}

# Ends step daemons that the slurmd above left: those that read its settings.
pkill_steps() {
  local environ
  for environ in /proc/[0-9]*/environ; do
    grep -qzxF "SLURM_CONF=$SLURM_CONF" "$environ" 2>/dev/null || continue
    local pid="${environ//[^0-9]/}"
    [[ "$(cat "/proc/$pid/comm" 2>/dev/null)" == slurm* ]] && kill -9 "$pid"
  done
  return 0
}

trap cleanup EXIT
trap 'exit 130' INT TERM

say() { echo "check_launchers: $*" >&2; }
fail() { say "$*"; exit 1; }

# A launcher that this shell was itself started by would be heard too.
while read -r name; do
  unset "$name"
done < <(compgen -e | grep -E '^(RANK|WORLD_SIZE|LOCAL_|GROUP_|MASTER_|SLURM_|OMPI_|PMIX?_|MPI_LOCAL|MV[2P]_|JSM_|FLUX_|PALS_|PET_|TORCHELASTIC_|TANDEM_)' || true)

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -q "$@" > "$work/apt.log" 2>&1 ||
    { cat "$work/apt.log" >&2; fail "apt-get $1 failed"; }
}

updated=0
install_packages() {  # install_packages WHAT_FOR DEBIAN_PACKAGE...
  local what="$1"
  shift
  ((install)) || fail "$what is missing; --install fetches it (Debian's $*)"
  ((EUID == 0)) ||
    fail "$what is missing, and only root can install it: run this as root, or" \
      "first: apt-get install $*"
  say "installing $*"
  ((updated)) || apt update
  updated=1
  apt install -y --no-install-recommends "$@"
}

need() {  # need COMMAND DEBIAN_PACKAGE...
  local command="$1"
  shift
  command -v "$command" > /dev/null || install_packages "$command" "$@"
}

need_torchrun() {
  [[ -x "$torch_dir/bin/torchrun" ]] && return
  ((install)) || fail "torchrun is missing in $torch_dir; --install fetches it"
  python3 -c 'import ensurepip, venv' 2> /dev/null ||
    install_packages "Python's venv module" python3-venv
  local version
  version=$(sed -n 's/^"""LibTorch \([0-9.]*\): .*/\1/p' "$root/third_party/libtorch/workspace.bzl")
  say "installing torch $version in $torch_dir (5 GB)"
  python3 -m venv "$torch_dir"
  "$torch_dir/bin/pip" install -q "torch==$version" numpy
}

# How long a launcher may take to do anything here.
limit=(timeout --kill-after=10 600)

run_tandem() { "${limit[@]}" "$@" --nproc_per_node=2; }

run_torchrun() {
  "${limit[@]}" "$torch_dir/bin/torchrun" --no-python --nproc_per_node=2 "$@"
}

# Debian's name, beside MPICH's. Elsewhere mpirun may be either one's.
openmpi() {
  if ! command -v mpirun.openmpi > /dev/null &&
     [[ "$(mpirun --version 2>&1)" == *"Open MPI"* ]]; then
    echo mpirun
  else
    echo mpirun.openmpi
  fi
}

run_mpirun() {
  local as_root=()
  ((EUID == 0)) && as_root=(--allow-run-as-root)
  "${limit[@]}" "$(openmpi)" "${as_root[@]}" --oversubscribe -n 2 "$@"
}

run_mpich() { "${limit[@]}" mpirun.mpich -n 2 "$@"; }

run_srun() {
  start_slurm
  "${limit[@]}" srun --overcommit -n 2 "$@"
}

slurm_conf() {
  local host="$1" dir="$2" port="$3"
  cat << CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SrunPortRange=$((port + 2))-$((port + 60))
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

start_slurm() {
  [[ -n "${SLURM_CONF:-}" ]] && return
  ((EUID == 0)) || fail "srun: only root can start Slurm's daemons"
  local dir="$work/slurm" host
  host="$(hostname -s)"
  chmod 755 "$work"
  mkdir -m 755 "$dir" "$dir/state" "$dir/spool"
  slurm_conf "$host" "$dir" $((21000 + $$ % 5000)) > "$dir/slurm.conf"
  export SLURM_CONF="$dir/slurm.conf"
  (umask 077 && head -c 1024 /dev/urandom > "$dir/munge.key")
  munged --foreground --force --key-file="$dir/munge.key" \
    --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" \
    > "$dir/munged.out" 2>&1 &
  daemons+=($!)
  await "munge's socket" "$dir/munged.out" test -S "$dir/munge.socket"
  slurmctld -D > "$dir/slurmctld.out" 2>&1 &
  daemons+=($!)
  slurmd -D -N "$host" > "$dir/slurmd.out" 2>&1 &
  daemons+=($!)
  await "an idle Slurm node" "$dir/slurmctld.out" node_is_idle
}

node_is_idle() { [[ "$(timeout 5 sinfo -h -o %T 2>/dev/null)" == idle ]]; }

await() {  # await WHAT LOG COMMAND...
  local what="$1" log="$2" deadline=$((SECONDS + 60))
  shift 2
  until "$@"; do
    if ((SECONDS > deadline)); then
      tail -n 20 "$log" >&2
      fail "no $what after 60 s"
    fi
    sleep 0.2
  done
}

prepare() {
  case "$1" in
    tandem) ;;
    torchrun) need_torchrun ;;
    mpirun) need "$(openmpi)" openmpi-bin ;;
    mpich) need mpirun.mpich mpich ;;
    srun) need munged munge; need slurmctld slurmctld; need slurmd slurmd
          need srun slurm-client ;;
    *) fail "unknown launcher $1; known: tandem, torchrun, mpirun, mpich, srun" ;;
  esac
}

# The variables of rank 1 that say something about the launch.
capture_one() {
  local launcher="$1"
  cat > "$work/capture" << 'CAPTURE'
#!/bin/bash
rank="${RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-${PMI_RANK:-0}}}}"
env | grep -E '^(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|SLURM_|OMPI_|PMIX?_|MPI_LOCAL|TORCH|OMP_)' \
  | LC_ALL=C sort > "$1.$rank"
CAPTURE
  chmod +x "$work/capture"
  "run_$launcher" "$work/capture" "$work/env" > /dev/null
  {
    echo "# Rank 1 of 2 under $launcher, by tools/check_launchers.sh --capture."
    scrub < "$work/env.1"
  } > "$capture/$launcher.env"
  rm -f "$work"/env.*
  say "wrote $capture/$launcher.env"
}

# Takes out what names this machine, its user, its addresses and its folders.
scrub() {
  sed -E -e "s#$work#/tmp/work#g" -e "s#\\b$(hostname -s)\\b#node1#g" \
    -e '/_(JOB_)?(USER|UID|GID)=|_URI[0-9]*=|_uri=|transports=|SUBMIT_DIR=|initial_wdir=/d' \
    -e 's#=(/[^/=]*)?/tmp/[^:]*#=/tmp/removed#' \
    -e "s#\\b$(id -un)\\b#user#g"
}

# The part of a metrics file that must not depend on the launcher.
losses() {
  grep -oE '"(event|step|epoch|loss|accuracy|test_accuracy|weights_sha256)": ?[^,}]*' \
    "$1" || true
}

compare() {
  local reference="" launcher verdict status=0
  printf '%-10s %-8s %s\n' launcher steps "last loss"
  for launcher in ${launchers//,/ }; do
    local file="$work/$launcher.jsonl"
    losses "$file" > "$file.losses"
    grep -q '^"loss"' "$file.losses" || fail "no losses under $launcher"
    reference="${reference:-$file.losses}"
    verdict=""
    if ! cmp -s "$reference" "$file.losses"; then
      verdict="  DIFFERS from the first"
      status=1
    fi
    printf '%-10s %-8s %s%s\n' "$launcher" \
      "$(grep -cE '"event": ?"step"' "$file" || true)" \
      "$(grep -E '^"loss"' "$file.losses" | tail -n 1 | sed 's/.*: *//')" \
      "$verdict"
  done
  return $status
}

for launcher in ${launchers//,/ }; do prepare "$launcher"; done

if [[ -n "$capture" ]]; then
  mkdir -p "$capture"
  for launcher in ${launchers//,/ }; do
    [[ "$launcher" == tandem ]] || capture_one "$launcher"
  done
  exit 0
fi

if [[ -z "$program" ]]; then
  (cd "$root" && bazel build //tools:train >&2)
  program="$root/bazel-bin/tools/train"
  # torchrun sets OMP_NUM_THREADS=1 and the others do not; bits follow threads.
  ((${#arguments[@]})) ||
    arguments=(--seed=1 --max_steps=50 --log_every=10 --intra_op_threads=1
               --save_dir=)
fi

for launcher in ${launchers//,/ }; do
  say "running under $launcher"
  "run_$launcher" "$program" "${arguments[@]}" \
    --metrics_file="$work/$launcher.jsonl" > "$work/$launcher.log" 2>&1 || {
    cat "$work/$launcher.log" >&2
    fail "the program failed under $launcher"
  }
  [[ -s "$work/$launcher.jsonl" ]] || fail "no metrics under $launcher"
done
compare
say "equal under all of them"
