#!/usr/bin/env bash
# Ranks that stall, die or differ. Usage: faults.sh CANZONA
set -u
canzona=$1
. "$(dirname "$0")/common.sh"

# A run of many steps in the background; returns when its ranks are at work.
start() {
  mpirun -np 4 "$canzona" run --tp 2 --strategy canzona --steps 900001 --deadline 3 --json "$folder/run.json" >"$folder/out" 2>&1 &
  job=$!
  for _ in $(seq 600); do
    working=0
    for process in $(ranks_of 900001); do
      if grep -qs '^canzona-stream' "/proc/$process/task/"*/comm; then working=$((working + 1)); fi
    done
    [ "$working" -lt 4 ] || break
    sleep 0.1
  done
  sleep 1
  victim=$(ranks_of 900001 | tail -n 1)
  [ -n "$victim" ] || fail "the ranks did not start"
  number=$(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
}

gone() { # nothing is left of the job
  for _ in $(seq 100); do
    [ -n "$(ranks_of 900001)" ] || return 0
    sleep 0.1
  done
  fail "$1: a process is left"
}

# A rank that stalls is named with its step by another within the deadline.
start
kill -STOP "$victim"
begun=$(date +%s)
wait "$job"
code=$?
[ $(($(date +%s) - begun)) -le 10 ] || fail "stalled: it took longer than the deadline"
[ "$code" -eq 4 ] || fail "stalled: exit code $code"
grep -Eq "^canzona: rank [0-9]+: waited 3 s for .*rank $number: ([A-Z][A-Za-z]+\([0-9a-z]+\) on [a-z]+(, )?)+" "$folder/out" || fail "stalled: rank $number is not named with its step"
gone stalled

# A rank that is killed ends all, and leaves nothing half written.
start
kill -KILL "$victim"
wait "$job"
code=$?
[ "$code" -ne 0 ] || fail "killed: exit code 0"
gone killed
[ -z "$(find "$folder" -name 'run.json*')" ] || fail "killed: a record of a run that did not end"

# Ranks that differ do not start, and are told why.
differ() { # what is to be said, arguments of the second rank
  expected=$1
  shift
  mpirun -np 1 "$canzona" run --tp 2 --steps 1 : -np 1 "$@" --tp 2 --steps 1 >"$folder/out" 2>&1
  code=$?
  [ "$code" -eq 2 ] || fail "differ: exit code $code"
  [ "$(grep -c '^canzona:' "$folder/out")" -eq 1 ] || fail "differ: not one line"
  grep -q "^canzona: rank 1.*$expected" "$folder/out" || fail "differ: '$expected' is not said"
}
differ 'its model is {"name":"qwen3-mini"' "$canzona" run --model qwen3-mini
differ 'its optimizer options is {"momentum":"0.9"}' "$canzona" run --optimizer-option momentum=0.9
differ "optimizer is 'adam'" "$canzona" run --optimizer adam
cp "$canzona" "$folder/other" && printf x >>"$folder/other"
differ 'its binary is' "$folder/other" run

# What all ranks are refused for is said once.
mpirun -np 2 "$canzona" run --dp 3 --steps 1 >"$folder/out" 2>&1
[ $? -eq 2 ] || fail "wrong mesh: exit code"
[ "$(grep -c '^canzona:' "$folder/out")" -eq 1 ] || fail "wrong mesh: not one line"
