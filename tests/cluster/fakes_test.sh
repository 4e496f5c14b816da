#!/usr/bin/env bash
# The stand-ins for Slurm's commands refuse what Slurm refuses, and run jobs and steps as it does. Usage: fakes_test.sh CANZONA
# shellcheck disable=SC2154 # folder: of common.sh
set -euo pipefail
canzona=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
# shellcheck source-path=SCRIPTDIR source=../mpi/common.sh disable=SC1091
. "$here/../mpi/common.sh"
for name in $(compgen -e | grep -E '^(FAKE_)?SLURM_'); do unset "$name"; done
export PATH=$here/slurm:$PATH FAKE_SLURM_STATE=$folder/jobs FAKE_SLURM_LOG=$folder/log OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
cd "$folder"
export TMPDIR=$folder

refused() { # WHAT IS SAID, COMMAND...
  local said=$1
  shift
  ! "$@" >out 2>&1 || fail "'$*' is not refused"
  grep -qF -- "$said" out || fail "'$*' does not say '$said'"
}
code_is() { # CODE COMMAND...
  local expected=$1 code=0
  shift
  "$@" >out 2>&1 || code=$?
  [ "$code" -eq "$expected" ] || fail "'$*': exit code $code, not $expected"
}
holds() { grep -qxF -- "$2" "$1" || { cp "$1" out; fail "$1 does not hold '$2'"; }; } # FILE LINE
script() { cat >"$1.sbatch"; }

refused 'SLURM_JOB_ID is not set' srun true
refused 'this stand-in knows requeue JOB and show hostnames [LIST]' scontrol show job 1
refused 'Invalid job id specified' scontrol requeue 9
[ "$(scontrol show hostnames 'a,node[0-1,3],gpu[09-10]' | tr '\n' ' ')" = 'a node0 node1 node3 gpu09 gpu10 ' ] || fail 'a list of hosts is wrong'

# Steps, in an allocation of two nodes.
(
  export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=2 SLURM_GPUS_PER_NODE=2
  refused "unrecognized option '--cpus'" srun --cpus=2 true
  refused "option '--nodes' requires an argument" srun --nodes
  refused 'No command given to execute' srun --nodes 2
  refused 'Invalid numeric value "two" for --nodes' srun --nodes=two true
  refused 'Only allocated 2 nodes asked for 3' srun --nodes=3 true
  refused 'More processors requested than permitted' srun --ntasks-per-node=3 true
  refused 'More processors requested than permitted' srun -N 1 -n 3 true
  refused 'Invalid generic resource (gres) specification' srun --gpus-per-node=3 true
  refused "invalid MPI type 'pmi2'" srun --mpi=pmi2 true
  refused 'mutually exclusive' srun --hint=nomultithread --cpu-bind=cores true
  SLURM_NTASKS=4 refused "can't honor --ntasks-per-node set to 2 which doesn't match the requested tasks 4" srun -N 1 --ntasks-per-node=2 true
  SLURM_NTASKS=4 code_is 0 srun --nodes=1 --ntasks=2 --ntasks-per-node=2 true
  # shellcheck disable=SC2016 # for the task
  code_is 0 srun --mpi=pmix bash -c 'printf "%s\n" "$SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID of $SLURM_NTASKS, $OMPI_COMM_WORLD_SIZE"'
  [ "$(sort out | tr '\n' ';')" = '0 0 0 of 4, 4;1 0 1 of 4, 4;2 1 0 of 4, 4;3 1 1 of 4, 4;' ] || fail 'tasks are not numbered'
  # shellcheck disable=SC2016
  code_is 0 srun --label --nodes=1 -n 2 --gpus-per-task=1 bash -c 'printf "%s\n" "$CUDA_VISIBLE_DEVICES ${OMPI_COMM_WORLD_SIZE-alone}"'
  [ "$(sort out | tr '\n' ';')" = '0: 0 alone;1: 0 alone;' ] || fail 'tasks without MPI are not alone, or do not see a GPU each'
  # shellcheck disable=SC2016
  code_is 6 srun bash -c 'exit $((SLURM_PROCID + 3))'
  # shellcheck disable=SC2016
  code_is 137 srun bash -c '[ "$SLURM_PROCID" -ne 1 ] || kill -KILL $$'
  # shellcheck disable=SC2016
  code_is 143 srun --kill-on-bad-exit=1 -n 2 bash -c '[ "$SLURM_PROCID" -ne 1 ] || exit 4; exec sleep 7654'
  srun -n 2 sleep 7654 >out 2>&1 &
  for _ in {1..100}; do [ "$(pgrep -cfx 'sleep 7654')" -lt 2 ] || break; sleep 0.1; done
  kill -TERM $!
  code_is 143 wait $!
)
! pgrep -fx 'sleep 7654' >/dev/null || fail 'a task is left after its step'
[ "$(grep -c '^srun' log)" -eq 19 ] || { cp log out; fail 'the log does not hold every step'; }

# Jobs.
script job <<'SBATCH'
#!/usr/bin/env bash
# What follows is read up to the first command.
#SBATCH --nodes=1 --ntasks-per-node=2 # of a comment, nothing
#SBATCH --job-name="a name" --time=10:00

#SBATCH --output=%x-%j.out
printf '%s\n' "nodes $SLURM_JOB_NUM_NODES of $SLURM_JOB_NODELIST" "tasks $SLURM_NTASKS_PER_NODE" "id $SLURM_JOB_ID" "in $PWD" \
  "from $SLURM_SUBMIT_DIR" "with $*" "restart ${SLURM_RESTART_COUNT-unset}" "X ${X-unset}" "Y ${Y-unset}"
#SBATCH --nonsense
[ "$(dirname "$0")" != "$SLURM_SUBMIT_DIR" ] || exit 1
srun --mpi=pmix "$1" run --tp 2 --steps 1 --strategy canzona || exit 2
srun "$1" run --tp 2 --steps 1 --strategy canzona && exit 3
exit 5
SBATCH
export X=1 Y=2
code_is 5 sbatch --wait --parsable --export="NONE,Y,Z=3${ASAN_OPTIONS:+,ASAN_OPTIONS}" job.sbatch "$canzona" 'two words'
holds out 1
for line in 'nodes 1 of node0' 'tasks 2' 'id 1' "in $folder" "from $folder" "with $canzona two words" 'restart unset' 'X unset' 'Y 2'; do
  holds 'a name-1.out' "$line"
done
grep -q '^canzona  *[0-9]' 'a name-1.out' || fail 'canzona did not run as a step of two tasks'
grep -q 'allowed: the 1 that were started' 'a name-1.out' || fail 'canzona without --mpi=pmix had company'
mkdir elsewhere
code_is 2 sbatch --wait --nodes=3 --chdir=elsewhere job.sbatch false # two tasks on each of three nodes, of which none runs canzona
holds 'elsewhere/a name-2.out' 'nodes 3 of node[0-2]'

refused "unrecognized option '--node-list" sbatch --node-list=a job.sbatch
refused 'Unable to open file' sbatch none.sbatch
printf '#!/bin/sh\n#SBATCH --nodes=1 --gpu=1\n' | script unknown
refused "unrecognized option '--gpu'" sbatch unknown.sbatch
printf '#!/bin/sh\n#SBATCH --nodes=1 a\n' | script stray
refused 'Invalid directive found in batch script: a' sbatch stray.sbatch
printf '#!/bin/sh\nsleep 9\n' | script plain
refused 'wants --nodes' sbatch plain.sbatch
refused 'Invalid --time specification' sbatch --nodes=1 --time=long plain.sbatch
printf 'sleep 9\n' | script nothing
refused 'This does not look like a batch script' sbatch --nodes=1 nothing.sbatch

# A job that comes near its limit is told so, alone, asks to be run again, and is ended at once with all its steps.
script limit <<'SBATCH'
#!/usr/bin/env bash
#SBATCH --nodes=1 --ntasks-per-node=2 --signal=B:USR1@60 --requeue --open-mode=append --output=limit.out
printf 'restart %s\n' "${SLURM_RESTART_COUNT-unset}"
[ ! "${SLURM_RESTART_COUNT-}" ] || exit 0
trap 'printf "told\n"; scontrol requeue "$SLURM_JOB_ID"' USR1
trap 'printf "ended\n"; exit 1' TERM
srun sleep 7654 &
wait $! || wait $!
SBATCH
FAKE_SLURM_TIME_LIMIT=1 code_is 0 timeout 60 sbatch --wait limit.sbatch
[ "$(grep -v ^srun limit.out | tr '\n' ' ')" = 'restart unset told ended restart 1 ' ] ||
  { cp limit.out out; fail 'the job was not told, ended and run again'; }
FAKE_SLURM_TIME_LIMIT=1 FAKE_SLURM_GRACE=1 code_is 137 sbatch --wait --no-requeue limit.sbatch
grep -q 'Requested operation is presently disabled' limit.out || fail 'a job with --no-requeue is requeued'
# What is still at work when the script has ended, ends.
printf '#!/bin/sh\nsrun sleep 7654 &\nsleep 1\nexit 3\n' | script short
code_is 3 sbatch --wait --nodes=1 --output=short.out short.sbatch
sleep 0.2
! pgrep -fx 'sleep 7654' >/dev/null || fail 'a step is left after its job'

# Nobody waits; what is requeued from outside runs again, up to three times.
printf '#!/bin/sh\nexec sleep 60\n' | script long
code_is 0 sbatch --nodes=1 --output=long.out long.sbatch
job=$(sed 's/^Submitted batch job //' out) requeues=0
until [ -e "jobs/$job/ended" ]; do
  scontrol requeue "$job"
  requeues=$((requeues + 1))
  for _ in {1..300}; do [ -e "jobs/$job/requeue" ] || break; sleep 0.1; done
  sleep 0.1
done
[ "$requeues" -eq 4 ] || fail "a job ended after it was requeued $requeues times, not 4"
