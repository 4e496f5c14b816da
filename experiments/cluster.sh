#!/usr/bin/env bash
# Measures the study on a cluster: examines the nodes, proves the strategies equal, calibrates, runs every point, and ends
# with a table, figures, a report beside the prediction, and an archive to share.
# Usage: experiments/cluster.sh [OPTION VALUE]...
#   --backend NAME          host or cuda [cuda]
#   --nodes N               [those of the Slurm job, or 1]
#   --ranks-per-node N      one a GPU [those of the Slurm job, or 8]
#   --model A,B,…           [qwen3-1.7b,qwen3-4b,qwen3-8b,qwen3-14b,qwen3-32b]
#   --tp N                  tensor-parallel ranks [all of a node, up to 8; of a single node, half]; data-parallel are the rest
#   --strategies A,B,…      [all]
#   --optimizers A,B,…      [muon,shampoo,soap]
#   --repeats N             launches of each point, interleaved [3]
#   --steps N               measured in each launch [20]
#   --checks A,B,…          models of which every weight is held against the reference first [qwen3-tiny,qwen3-mini]
#   --samples A,B,…         models of which parameters of each kind are, in one step of each strategy [the last of --model, but for those]
#   --tokens N              of a micro-batch [8192; 64 on the host]
#   --bucket-size N         elements at which a bucket of gradients closes [default: each strategy's own; 1000000 on the host]
#   --precision NAME        fp32, bf16 or fp16 [bf16; fp32 on the host]
#   --cluster NAME|PATH     the cluster file that is nearest to this one, for what is said beforehand [h100-256; none on the host]
#   --launcher NAME         srun or mpirun [srun in a Slurm job]
#   --launcher-option TEXT  given to it too, such as --hostfile=FILE; may be repeated (srun makes its ranks by SLURM_MPI_TYPE [pmix])
#   --deadline SECONDS      how long a rank waits for another before the point counts as failed [120]
#   --limit SECONDS         after which a launch is ended [3600]
#   --built DIR             where the command is [build/release/bin]
#   --out DIR               where everything goes [build/study]
#   --dry-run               prints the memory, the predicted time and every command; needs no GPU and no job
# Started again with the same options it goes on where it was: what is finished is not repeated, what failed is tried again.
# Exit code 0: every point was measured; 1: a point or a check failed; 2: it cannot run here; 130: interrupted.
set -euo pipefail
checkout=${CANZONA_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}

backend=cuda nodes=${SLURM_JOB_NUM_NODES:-1} ranks_per_node=${SLURM_NTASKS_PER_NODE:-8} tp=
models=qwen3-1.7b,qwen3-4b,qwen3-8b,qwen3-14b,qwen3-32b strategies=all optimizers=muon,shampoo,soap
checks=qwen3-tiny,qwen3-mini samples='' repeats=3 steps=20 tokens='' bucket_size='' precision='' cluster='' deadline=120 limit=3600
launcher=${SLURM_JOB_ID:+srun} launcher_options=() built=$checkout/build/release/bin out=$checkout/build/study dry_run=
bad() { printf 'cluster.sh: %s\n' "$1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) dry_run=yes; shift; continue ;;
    -h | --help) sed -n '2,/^# Exit/s/^# \?//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  esac
  [ $# -ge 2 ] || bad "$1 needs a value, or is unknown; see --help"
  case "$1" in
    --backend) backend=$2 ;;
    --nodes) nodes=$2 ;;
    --ranks-per-node) ranks_per_node=$2 ;;
    --model | --models) models=$2 ;;
    --tp) tp=$2 ;;
    --strategies) strategies=$2 ;;
    --optimizers) optimizers=$2 ;;
    --repeats) repeats=$2 ;;
    --steps) steps=$2 ;;
    --checks) checks=$2 ;;
    --samples) samples=$2 ;;
    --tokens) tokens=$2 ;;
    --bucket-size) bucket_size=$2 ;;
    --precision) precision=$2 ;;
    --cluster) cluster=$2 ;;
    --launcher) launcher=$2 ;;
    --launcher-option) launcher_options+=("$2") ;;
    --deadline) deadline=$2 ;;
    --limit) limit=$2 ;;
    --built) built=$(realpath "$2") ;;
    --out) out=$(realpath -m "$2") ;;
    *) bad "unknown argument '$1'; see --help" ;;
  esac
  shift 2
done
for number in "$nodes" "$ranks_per_node" "${tp:-1}" "$repeats" "$steps" "$limit"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || bad "'$number' is no positive number"
done
launcher=${launcher:-mpirun}
[[ $launcher = srun || $launcher = mpirun ]] || bad "--launcher is '$launcher', allowed: srun, mpirun"
if [ "$backend" = host ]; then
  tokens=${tokens:-64} bucket_size=${bucket_size:-1000000} precision=${precision:-fp32}
else
  tokens=${tokens:-8192} bucket_size=${bucket_size:-default} precision=${precision:-bf16} cluster=${cluster:-h100-256}
fi
ranks=$((nodes * ranks_per_node))
if [ ! "$tp" ]; then
  tp=$((ranks_per_node < 8 ? ranks_per_node : 8))
  [ "$nodes" != 1 ] || [ "$tp" = 1 ] || tp=$((tp / 2))
fi
[ $((ranks % tp)) = 0 ] || bad "--tp $tp does not divide the $ranks ranks"
dp=$((ranks / tp))
canzona=$built/canzona
[ -x "$canzona" ] || bad "$canzona is not there: build it with 'tests/run.sh', or 'cmake --preset release && cmake --build --preset release'"
export CANZONA_ROOT=$checkout
[ "$strategies" != all ] || strategies=$("$canzona" list --names strategies | paste -sd,)
IFS=, read -ra models <<<"$models"
IFS=, read -ra strategies <<<"$strategies"
[[ $samples || ,$checks, = *,${models[-1]},* ]] || samples=${models[-1]}
IFS=, read -ra checks <<<"$checks"
IFS=, read -ra samples <<<"$samples"
IFS=, read -ra optimizers <<<"$optimizers"

carried=()
if [ "$launcher" = srun ]; then
  export SLURM_MPI_TYPE=${SLURM_MPI_TYPE:-pmix}
  [ ! "${SLURM_CPUS_PER_TASK-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # steps do not take it from the job
else # Open MPI: as root too; ranks that wait leave a core that they share to others; the environment goes to other nodes by name
  [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  [ "$ranks_per_node" -le "$(nproc)" ] || export OMPI_MCA_mpi_yield_when_idle=1
  for name in $(compgen -e | grep -E '^(CANZONA_ROOT|LD_LIBRARY_PATH|(CUDA|NCCL|OMP|OPENBLAS)_.*)$'); do carried+=(-x "$name"); done
fi

# COMMAND...: a process a rank.
launch() {
  if [ "$launcher" = srun ]; then
    set -- srun --nodes="$nodes" --ntasks="$ranks" --ntasks-per-node="$ranks_per_node" --kill-on-bad-exit=1 "${launcher_options[@]}" "$@"
  else
    set -- mpirun -np "$ranks" --map-by "ppr:$ranks_per_node:node:oversubscribe" "${carried[@]}" "${launcher_options[@]}" "$@"
  fi
  if [ "$dry_run" ]; then printf '%s\n' "$*"; else exec timeout --kill-after=30 "$limit" "$@"; fi
}
say() { [ "$dry_run" ] || printf '%s\n' "$*"; }
running='' failed=0
# shellcheck disable=SC2317 # called by the trap
stop() {
  trap '' INT TERM
  [ ! "$running" ] || kill -TERM "$running" 2>/dev/null || true
  wait || true
  printf 'interrupted; the same command goes on from here\n' >&2
  exit 130
}

# FILE COMMAND...: launches what makes the file, unless it is there and all was well. What it prints is its log, and the
# reason of a failure is kept.
make_file() {
  local file=$1 name=${1#"$out"/} code=0 begin=$SECONDS
  local log=$out/logs/${name//\//-}.log reason=$out/failed/${name//\//-}.txt
  shift
  if [ "$dry_run" ]; then launch "$@"; return; fi
  if [ -e "$file" ] && [ ! -e "$reason" ]; then say "$name: finished before"; return; fi
  launch "$@" >"$log" 2>&1 &
  running=$!
  wait "$running" || code=$?
  running=
  if [ "$code" = 0 ]; then
    rm -f "$reason"
    say "$name: $((SECONDS - begin)) s"
  else
    failed=1
    printf 'exit code %d: %s\n' "$code" "$(grep -m 1 '^canzona:' "$log" || tail -n 1 "$log")" >"$reason"
    say "$name: FAILED, $(cat "$reason")"
  fi
}

# MODEL OPTIMIZER: what all commands on the two say alike.
point() { options=(--model "$1" --optimizer "$2" --dp "$dp" --tp "$tp" --bucket-size "$bucket_size"); }
engine=(--backend "$backend" --deadline "$deadline" --tokens "$tokens")

# Where: what is bad ends here, since nothing that is measured then would mean much.
examine() {
  point "${models[-1]}" "${optimizers[0]}"
  [ "$dry_run" ] || rm -f "$out/environment.json"
  make_file "$out/environment.json" "$canzona" environment "${options[@]}" "${engine[@]}" --precision "$precision" \
    --nodes "$nodes" --ranks-per-node "$ranks_per_node" ${cluster:+--cluster "$cluster"} --json "$out/environment.json"
}

# Small models, all of their weights against the reference. Of large ones a sample, another one for each strategy.
check() {
  local model optimizer strategy file seed=0
  for model in "${checks[@]}"; do
    for optimizer in "${optimizers[@]}"; do
      make_file "$out/checks/$model-$optimizer.json" "$canzona" run --model "$model" --optimizer "$optimizer" \
        --dp "$dp" --tp "$tp" --backend "$backend" --deadline "$deadline" --precision "$precision" \
        --strategy all --steps 3 --check --json "$out/checks/$model-$optimizer.json"
    done
  done
  for model in "${samples[@]}"; do
    for optimizer in "${optimizers[@]}"; do
      point "$model" "$optimizer"
      for strategy in "${strategies[@]}"; do
        file=$out/checks/$(basename "$model" .json)-$optimizer-sample-$strategy.json
        make_file "$file" "$canzona" run "${options[@]}" "${engine[@]}" --precision "$precision" --strategy "$strategy" \
          --steps 1 --warmup 0 --check=1 --seed $((++seed)) --json "$file"
      done
    done
  done
}

calibrate() {
  local model optimizer file
  for model in "${models[@]}"; do
    for optimizer in "${optimizers[@]}"; do
      point "$model" "$optimizer"
      file=$out/clusters/$(basename "$model" .json)-$optimizer.toml
      make_file "$file" "$canzona" calibrate "${options[@]}" "${engine[@]}" --precision "$precision" --output "$file"
    done
  done
}

# Repeats are the outer loop: what changes on the cluster changes for all points alike.
measure() {
  local repeat model optimizer strategy name file prediction
  for repeat in $(seq "$repeats"); do
    for model in "${models[@]}"; do
      for optimizer in "${optimizers[@]}"; do
        point "$model" "$optimizer"
        name=$(basename "$model" .json)
        prediction=(--predict "$out/clusters/$name-$optimizer.toml")
        [ "$dry_run" ] || [ -e "${prediction[1]}" ] || prediction=() # its calibration failed
        for strategy in "${strategies[@]}"; do
          file=$out/records/$name-dp$dp-tp$tp-$strategy-$optimizer-$repeat.json
          make_file "$file" "$canzona" run "${options[@]}" "${engine[@]}" --precision "$precision" --strategy "$strategy" \
            --steps "$steps" "${prediction[@]}" --json "$file"
        done
      done
    done
  done
}

# What is known beforehand: memory of the fullest rank, and the nearest cluster's prediction.
announce() {
  local model optimizer total=0 seconds
  printf '%d nodes of %d ranks: dp %d × tp %d, backend %s in %s; %d points, %d launches each\n' "$nodes" "$ranks_per_node" \
    "$dp" "$tp" "$backend" "$precision" $((${#models[@]} * ${#optimizers[@]} * ${#strategies[@]})) "$repeats"
  for model in "${models[@]}"; do
    for optimizer in "${optimizers[@]}"; do
      point "$model" "$optimizer"
      printf '\n%s, %s: memory of the fullest rank\n\n' "$model" "$optimizer"
      "$canzona" plan "${options[@]}" --memory --tokens "$tokens" --precision "$precision" ${cluster:+--cluster "$cluster"} |
        sed '1,/^largest matrix/d'
      [ "$cluster" ] || continue
      printf '\n%s, %s: predicted from %s\n\n' "$model" "$optimizer" "$cluster"
      "$canzona" simulate "${options[@]}" --tokens-per-gpu "$tokens" --cluster "$cluster"
      seconds=$("$canzona" simulate "${options[@]}" --tokens-per-gpu "$tokens" --cluster "$cluster" --json - | seconds_of_launches)
      total=$((total + repeats * seconds))
    done
  done
  [ ! "$cluster" ] || printf '\nPredicted for all launches, without their starts: %d s\n' "$total"
  printf '\nCommands:\n\n'
}

# Of one launch of each strategy, from their records: a turn is one iteration that is not measured and then a period of
# refreshes; one turn warms up.
seconds_of_launches() {
  awk -v steps="$steps" -v chosen=" ${strategies[*]} " '
    /^    "strategy":/ { gsub(/[",]/, ""); wanted = index(chosen, " " $2 " "); period = 1; first = 1 }
    first && /^      "iteration":/ { iteration = $2 + 0; first = 0 }
    /^      "period":/ { period = $2 + 0 }
    /^    "timeline":/ && wanted { turns = int((steps + period - 1) / period); sum += iteration * (1 + turns) * (1 + period) }
    END { printf "%d", sum + 0.5 }'
}

# The table and the report beside the prediction, figures where matplotlib is there, and the archive.
finish() {
  local python=/usr/bin/python3 optimizer
  if [ "$dry_run" ]; then
    printf '%s collect %s\n%s pack %s --output %s\n' "$canzona" "$out" "$canzona" "$out" "$out/study.tar.gz"
    return
  fi
  "$canzona" collect "$out" >"$out/logs/collect.log" || failed=1 # what is said of it comes below
  if $python -c 'import matplotlib' 2>/dev/null; then
    for optimizer in "${optimizers[@]}"; do
      $python "$checkout/plots/step.py" --kind measured --records "$out/study" --optimizer "$optimizer" \
        --model "$(basename "${models[-1]}" .json)" --output "$out/figures/$optimizer" >>"$out/logs/figures.log" 2>&1 || failed=1
    done
  else
    say 'No figures: matplotlib is not installed'
  fi
  "$canzona" collect "$out" || failed=1
  "$canzona" pack "$out" --output "$out/study.tar.gz"
  printf '\nReport: %s/report.md. To share: %s/study.tar.gz\n' "$out" "$out"
}

if [ "$dry_run" ]; then
  announce
else
  mkdir -p "$out"/{records,checks,clusters,logs,failed}
  # The ranks of a launch whose script was killed hold the lock until they end.
  exec 9>"$out/lock"
  flock -n 9 || { say "waiting for a launch that is still under way in $out"; flock 9; }
  trap stop INT TERM
  study=$(printf '%s\n' "revision $("$canzona" --version)" "backend $backend" "nodes $nodes" "ranks per node $ranks_per_node" \
    "tp $tp" "steps $steps" "tokens $tokens" "bucket size $bucket_size" "precision $precision")
  [ -e "$out/study.txt" ] || printf '%s\n' "$study" >"$out/study.txt"
  difference=$(diff "$out/study.txt" - <<<"$study" | grep '^[<>]' | tr '\n' ' ') || true
  [ ! "$difference" ] || bad "$out holds a study under other conditions ($difference): choose another --out"
fi
say 'Where'
examine
[ "$dry_run" ] || cat "$out/logs/environment.json.log"
[ "$failed" = 0 ] || exit 2
say 'Equal to one device'
check
say 'Calibration'
calibrate
say 'Points'
measure
finish
exit "$failed"
