# One task of a step of the stand-in for srun, started by mpirun: tells it which one it is, as Slurm does, and notes how it
# ended. Usage: task.sh FOLDER COMMAND...
# shellcheck shell=bash
set -euo pipefail
folder=$1
shift
export SLURM_PROCID=$OMPI_COMM_WORLD_RANK
export SLURM_NODEID=$((SLURM_PROCID / FAKE_SLURM_TASKS_ON_NODE)) SLURM_LOCALID=$((SLURM_PROCID % FAKE_SLURM_TASKS_ON_NODE))
# What a task sees of the GPUs where Slurm confines it to them: always from 0.
if [ "$FAKE_SLURM_GPUS" ]; then CUDA_VISIBLE_DEVICES=$(seq -s , 0 $((FAKE_SLURM_GPUS - 1))) && export CUDA_VISIBLE_DEVICES; fi
# Where Slurm's MPI type is none, every task is alone in its world.
if [ "$FAKE_SLURM_MPI" = none ]; then
  for name in $(compgen -e | grep -E '^(OMPI|PMIX|ORTE)_' | grep -vE '^OMPI_(MCA_(plm|ras|mpi|rmaps|hwloc)_|ALLOW_)'); do unset "$name"; done
fi
if [ "$FAKE_SLURM_LABEL" ]; then exec > >(exec sed -u "s/^/$SLURM_PROCID: /") 2>&1; fi
trap : TERM INT # they come to the command, too
exec 3>&2 2>/dev/null # this shell would say that the command was killed, and srun does
code=0
"$@" 2>&3 3>&- || code=$?
printf '%d' "$code" >"$folder/$SLURM_PROCID"
exit "$code"
