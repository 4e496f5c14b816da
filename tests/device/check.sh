#!/usr/bin/env bash
# Builds, checks and measures the CUDA backend on a machine with an NVIDIA GPU, in about ten minutes; ends with a table.
# Usage: tests/device/check.sh [--built DIR] [--out DIR] [--dry-run]
#   --built DIR  takes programs that were built elsewhere; nothing is built
#   --out DIR    where logs, records and measurements go [build/device-check]
#   --dry-run    builds, and lists the commands that it would run; needs no GPU
# Exit code 0: all passed; 1: a check failed; 2: it cannot run here.
# shellcheck disable=SC2317 # what shows a log is called by its name
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
programs=(canzona canzona_device_tests benchmark_newton_schulz benchmark_symmetric_products benchmark_elementwise benchmark_collectives)

built='' out=$checkout/build/device-check dry_run=
while [ $# -gt 0 ]; do
  case "$1" in
    --built | --out)
      [ $# -ge 2 ] || { printf '%s needs a folder\n' "$1" >&2; exit 2; }
      if [ "$1" = --built ]; then built=$(realpath "$2"); else out=$(realpath -m "$2"); fi
      shift 2
      ;;
    --dry-run) dry_run=yes; shift ;;
    -h | --help) sed -n '2,/^# Exit/s/^# \?//p' "$0"; exit 0 ;;
    *) printf "unknown argument '%s'; allowed: --built DIR, --out DIR, --dry-run\n" "$1" >&2; exit 2 ;;
  esac
done

rows=() failed=0
row() { rows+=("$(printf '%-36s %-7s %7s  %s' "$@")"); }

# check NAME LIMIT SHOW COMMAND...: runs the command for LIMIT seconds at most; SHOW makes a line of its log.
check() {
  local name=$1 limit=$2 show=$3 begin=$SECONDS result=passed log
  log=$out/${1//[ \/]/_}.log
  shift 3
  if [ "$dry_run" ]; then printf '%s: %s\n' "$name" "$*"; return; fi
  printf '%s ...\n' "$name"
  local line
  if timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1; then
    line=$("$show" "$log") || result=failed
  else
    line="exit code $?: $(grep -m 1 '^canzona:' "$log" || tail -n 1 "$log")"
    result=failed
  fi
  [ "$result" = passed ] || { failed=1; line="$line ($log)"; }
  row "$name" "$result" "$((SECONDS - begin))" "$line"
}

# What a log shows, in one line; false where it shows that nothing was checked.
tests_of() {
  grep -qi skipped "$1" && { printf 'tests were skipped'; return 1; }
  sed -n 's/^\[  PASSED  \] //p' "$1"
}
errors_of() { # the last two columns of canzona run: worst error and bound
  awk '$NF ~ /^[0-9.]+(e[-+][0-9]+)?$/ && NF > 4 { n++; if ($(NF - 1) > worst) worst = $(NF - 1); bound = $NF }
    END { printf "%d strategies, worst error %s of %s", n, worst + 0, bound; exit n == 5 ? 0 : 1 }' "$1"
}
sanitized() { grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$1" | tail -n 1 | sed 's/^=* *//'; }
counter_of() { # lowest and highest of a counter in a log's JSON file; of repetitions, their medians
  awk -v key="\"$1\":" '/"run_type"/ { counts = /iteration/ } /"aggregate_name": "median"/ { counts = 1 }
    counts && $1 == key { if (n++ == 0 || $2 + 0 < low) low = $2 + 0; if ($2 + 0 > high) high = $2 + 0 }
    END { printf "%.3g to %.3g", low, high; exit n == 0 }' "${2%.log}.json"
}
newton_schulz_of() { printf 'executed FLOP/s %s of sgemm' "$(counter_of executed/sgemm "$1")"; }
symmetric_of() { printf '%s times as fast as a plain product' "$(counter_of speedup_over_plain "$1")"; }
elementwise_of() { printf '%s of the rate of a copy' "$(counter_of of_copy "$1")"; }
step_of() { # the record that a log stands beside
  local median
  median=$(tr -d ' \n' <"${1%.log}.json" | grep -o '"optimizer_step":{"median":[^,]*') || return 1
  printf '%s s, the median step' "${median##*:}"
}
collectives_of() { printf '%s bytes/s sent by a rank' "$(counter_of bytes/s "$1")"; }

if [ ! "$built" ]; then
  built=$checkout/build/release/bin
  cmake -S "$checkout" --preset release -DCANZONA_CUDA=ON
  cmake --build "$checkout/build/release" --target "${programs[@]}"
fi
for program in "${programs[@]}"; do
  [ -x "$built/$program" ] || { printf '%s is not there\n' "$built/$program" >&2; exit 2; }
done
lacking=$(for program in "${programs[@]}"; do ldd "$built/$program"; done | sed -n 's/^\s*\(\S*\) => not found/\1/p' | sort -u)
[ ! "$lacking" ] || { printf 'libraries that the programs need and this machine lacks: %s\n' "$(tr '\n' ' ' <<<"$lacking")" >&2; exit 2; }
if [ ! "$dry_run" ]; then
  command -v mpirun >/dev/null || { printf 'mpirun is not installed, and ranks are processes\n' >&2; exit 2; }
  gpus=$(nvidia-smi -L 2>&1) || { printf 'there is no NVIDIA GPU here: %s\n' "$gpus" >&2; exit 2; }
  mkdir -p "$out"
fi
# shellcheck source=/dev/null
. "$checkout/tests/mpi/common.sh"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# The same suite as on the host and on the emulated GPU.
check 'device tests' 240 tests_of "$built/canzona_device_tests"

# Ranks may share a GPU: the backend then gives each an NCCL_HOSTID of its own.
ranks() { # NAME RANKS TP ARGUMENT...
  local name=$1 ranks=$2 tp=$3
  shift 3
  check "$name" 90 errors_of mpirun -np "$ranks" "$built/canzona" run --backend cuda --model qwen3-tiny \
    --dp $((ranks / tp)) --tp "$tp" --strategy all --bucket-size 32768 --steps 3 --deadline 30 --check \
    --json "$out/${name//[ \/]/_}.json" "$@"
}
for optimizer in muon normuon shampoo soap adamw; do
  ranks "$optimizer on 1 rank" 1 1 --optimizer "$optimizer"
  ranks "$optimizer on 2 ranks" 2 1 --optimizer "$optimizer"
  ranks "$optimizer on 4 ranks" 4 2 --optimizer "$optimizer"
  ranks "$optimizer on 8 ranks" 8 2 --optimizer "$optimizer"
  ranks "$optimizer without graphs" 4 2 --optimizer "$optimizer" --graphs off
done
for way in per-owner padded pairwise; do
  ranks "$way on 3 ranks" 3 1 --backend-option "uneven=$way"
  ranks "$way on 8 ranks in bf16" 8 2 --backend-option "uneven=$way" --gradient-dtype bf16
done

for precision in bf16 fp16; do
  for way in cublas tiles; do
    ranks "muon in $precision by $way" 4 2 --precision "$precision" --backend-option "symmetric=$way"
  done
done

if command -v compute-sanitizer >/dev/null || [ "$dry_run" ]; then
  check memcheck 180 sanitized compute-sanitizer --tool memcheck --error-exitcode 1 "$built/canzona_device_tests" \
    --gtest_filter='DeviceLaunch.*:DeviceStreams.*:*DeviceAlgebra*.*:EngineOptimizers.*'
  check racecheck 120 sanitized compute-sanitizer --tool racecheck --error-exitcode 1 "$built/canzona_device_tests" \
    --gtest_filter='DeviceLaunch.*:*DeviceAlgebra*.*'
else
  row 'memcheck, racecheck' skipped 0 'compute-sanitizer is not installed'
fi

measure() { # NAME SHOW COMMAND...
  local name=$1 show=$2
  shift 2
  check "$name" 120 "$show" "$@" --benchmark_out_format=json --benchmark_out="$out/${name//[ \/]/_}.json"
}
for graphs in on off; do
  check "step with graphs $graphs" 60 step_of "$built/canzona" run --backend cuda --ranks 1 --model qwen3-mini \
    --strategy canzona --steps 20 --graphs "$graphs" --json "$out/step_with_graphs_$graphs.json"
done
measure 'newton-schulz' newton_schulz_of "$built/benchmark_newton_schulz" --backend cuda
for way in cublas tiles; do
  measure "symmetric products by $way" symmetric_of "$built/benchmark_symmetric_products" --backend cuda --backend-option "symmetric=$way"
done
measure 'elementwise' elementwise_of "$built/benchmark_elementwise" --backend cuda
for way in per-owner padded pairwise; do
  measure "collectives $way" collectives_of mpirun -np 2 "$built/benchmark_collectives" --backend cuda --backend-option "uneven=$way"
done

[ ! "$dry_run" ] || exit 0
{
  printf '\n%s\n\n' "$gpus"
  printf '%-36s %-7s %7s  %s\n' check result seconds 'what it shows'
  printf '%s\n' "${rows[@]}"
  printf '%d s in all; logs, records and measurements are in %s\n' "$SECONDS" "$out"
} | tee "$out/table.txt"
exit "$failed"
