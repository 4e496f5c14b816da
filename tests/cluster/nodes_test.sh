#!/usr/bin/env bash
# Ranks on several machines equal one device, and those that stall are named; the machines are namespaces of this one. Exit
# code 77 where it does not allow them. Usage: nodes_test.sh CANZONA
# shellcheck disable=SC2154 # folder: of common.sh
set -euo pipefail
canzona=$(realpath "$1")
nodes=$(realpath "$(dirname "$0")")/nodes.sh
# shellcheck source-path=SCRIPTDIR source=../mpi/common.sh disable=SC1091
. "$(dirname "$0")/../mpi/common.sh"
cd "$folder"
export TMPDIR=$folder

# Two machines indeed: names, shared memory, and ranks that reach each other over the network alone.
code=0
# shellcheck disable=SC2016 # for the rank
"$nodes" 2 2 bash -c 'touch "/dev/shm/seen-$(hostname)"; sleep 1; printf "%s\n" "$(hostname) $(ls /dev/shm | grep seen)"' >out 2>&1 || code=$?
[ "$code" -ne 77 ] || { cat out; exit 77; }
[ "$(sort out | uniq -c | tr -s ' \n' ' ')" = ' 2 node0 seen-node0 2 node1 seen-node1 ' ] || fail 'not two machines of two ranks'
run=(run --tp 2 --strategy all --bucket-size 32768 --steps 2 --warmup 0 --check)
! "$nodes" --first 2 1 mpirun -np 2 ${ASAN_OPTIONS:+-x ASAN_OPTIONS} --mca btl vader,self "$canzona" "${run[@]}" >out 2>&1 || fail 'machines reach each other without a network'
grep -q 'unable to reach each other' out || fail 'machines without a network: another reason'

# The tensor-parallel ranks of a machine, and each on another.
for shape in '2 2' '4 1'; do
  # shellcheck disable=SC2086 # two words
  "$nodes" $shape "$canzona" "${run[@]}" --json run.json >out 2>&1 || fail "nodes and ranks $shape: exit code $?"
  python3 - <<'PY' || fail "nodes and ranks $shape: the record is wrong"
import json
record = json.load(open("run.json"))
assert record["settings"]["ranks_are"] == "processes" and record["mesh"] == {"dp": 2, "tp": 2, "pp": 1}
assert len(record["results"]) == 5 and all(r["check"]["passed"] for r in record["results"])
PY
done

# Their clocks are 1000 s apart, and what they measured is told on one.
"$nodes" 2 1 "$canzona" run --strategy canzona --steps 2 --trace trace.json >out 2>&1 || fail "trace: exit code $?"
python3 - <<'PY' || fail 'the machines tell their times on different clocks'
import json
events = [e for e in json.load(open("trace.json"))["traceEvents"] if e.get("ph") == "X"]
assert len({e["pid"] for e in events}) == 2, events[:2]
assert all(-1 < e["ts"] < 100e6 and 0 <= e["dur"] < 100e6 for e in events)
PY

# A rank that stalls is named by another machine, which cannot see where it stands.
cat >stall.sh <<'SH'
mpirun -np 2 ${ASAN_OPTIONS:+-x ASAN_OPTIONS} "$1" run --strategy canzona --steps 900001 --deadline 3 &
job=$!
for _ in {1..300}; do
  victim=$(pgrep -f "$1 run.*900001" | while read -r process; do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx OMPI_COMM_WORLD_RANK=1 ||
      ! grep -qs '^canzona-stream' "/proc/$process/task/"*/comm || printf '%s' "$process"
  done)
  [ ! "$victim" ] || break
  sleep 0.1
done
sleep 1
kill -STOP "$victim"
wait "$job"
SH
code=0
"$nodes" --first 2 1 bash stall.sh "$canzona" >out 2>&1 || code=$?
[ "$code" -eq 4 ] || fail "stalled: exit code $code"
grep -q '^canzona: rank 0: waited 3 s for rank 1, on another machine' out || fail 'stalled: rank 1 is not named'

# However the cluster ends, nothing is left of it.
for signal in TERM KILL; do
  "$nodes" 2 1 sleep 7653 >out 2>&1 &
  for _ in {1..100}; do [ "$(pgrep -cfx 'sleep 7653')" -lt 2 ] || break; sleep 0.1; done
  kill "-$signal" $!
  ! wait $! || fail "$signal: exit code 0"
  for _ in {1..50}; do pgrep -fx 'sleep 7653' >/dev/null || break; sleep 0.1; done
  ! pgrep -fx 'sleep 7653' >/dev/null || fail "$signal: a rank is left"
done 2>/dev/null # the shell says who was killed
