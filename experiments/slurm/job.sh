# shellcheck shell=bash
# Sourced by the sbatch files, of which Slurm runs copies: the study in this job. When its time is nearly up it ends the
# launch under way and puts itself back into the queue, where it goes on with what is left; so does a job that was preempted
# or lost a node, since Slurm requeues those.
cd "$SLURM_SUBMIT_DIR" || exit 2
experiments/cluster.sh --launcher srun "$@" &
study=$!
# shellcheck disable=SC2317 # called by the trap
go_on_later() {
  trap '' USR1
  kill -TERM "$study"
  wait "$study" || true
  scontrol requeue "$SLURM_JOB_ID"
  exit 0
}
trap go_on_later USR1
wait "$study"
