#!/usr/bin/env bash
# The sbatch files under the stand-ins for Slurm: a job whose time is up is queued again and goes on where it was. Usage:
# slurm_test.sh CANZONA
set -euo pipefail
canzona=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
# shellcheck source-path=SCRIPTDIR source=../mpi/common.sh
. "$here/../mpi/common.sh"
cd "$root"
for file in experiments/slurm/*.sbatch experiments/slurm/job.sh experiments/cluster.sh; do
  bash -n "$file" || fail "$file is no bash"
  ! command -v shellcheck >/dev/null || shellcheck -x "$file" >"$folder/out" || fail "$file: shellcheck complains"
done

export PATH=$here/slurm:$PATH FAKE_SLURM_LOG=$folder/steps FAKE_SLURM_GRACE=60
# shellcheck disable=SC2054 # commas within a value
options=(--checks qwen3-tiny --model qwen3-tiny --optimizers muon --strategies synchronous,canzona --repeats 1 --steps 2
  --built "$(dirname "$canzona")" --out "$folder/study")
job=(sbatch --wait --ntasks-per-node=2 --output="$folder/out")

# Its time is up while it is at work: it is queued again, and ends.
FAKE_SLURM_TIME_LIMIT=4 "${job[@]}" --nodes=1 experiments/slurm/study.sbatch --backend host "${options[@]}" >"$folder/said" || fail 'the job failed'
grep -q 'interrupted; the same command goes on' "$folder/out" || fail 'its time was not up'
[ "$(find "$folder/study/records" -name '*.json' | wc -l)" = 2 ] || fail 'other records'
grep -q 'Report: ' "$folder/out" || fail 'no report'
[ "$(grep -c '^srun --nodes=1 --ntasks=2 --ntasks-per-node=2 .*canzona run .*--predict' "$folder/steps")" -ge 2 ] || fail 'points are no steps of the job'

# The other file, on two machines where this one can make them.
cluster=() nodes=1
! "$here/nodes.sh" --first 2 2 true >"$folder/said" 2>&1 || cluster=("$here/nodes.sh" --first 2 2) nodes=2
[ "$nodes" = 2 ] || cat "$folder/said"
"${cluster[@]}" "${job[@]}" --nodes=$nodes experiments/slurm/host.sbatch "${options[@]}" --out "$folder/host" >"$folder/said" || fail 'the other job failed'
grep -q "^ranks  *2 on each of $nodes nodes " "$folder/out" || fail 'the other job ran elsewhere'
[ -s "$folder/host/report.md" ] || fail 'the other job has no report'
