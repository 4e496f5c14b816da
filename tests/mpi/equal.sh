#!/usr/bin/env bash
# Ranks that are processes equal one device, with uneven shares and ranks that own nothing. Usage: equal.sh CANZONA OPTIMIZER
set -u
canzona=$1
optimizer=$2
. "$(dirname "$0")/common.sh"

run() { # ranks, tp
  mpirun -np "$1" "$canzona" run --model qwen3-tiny --tp "$2" --strategy all --optimizer "$optimizer" --bucket-size 32768 \
    --steps 2 --warmup 0 --check --json "$folder/run.json" >"$folder/out" 2>&1 || fail "$1 ranks, tp $2: exit code $?"
  python3 - "$folder/run.json" <<'PY' || fail "$1 ranks, tp $2: the record is wrong"
import json, sys
record = json.load(open(sys.argv[1]))
assert record["settings"]["ranks_are"] == "processes"
assert [r["strategy"] for r in record["results"]] == ["synchronous", "layerwise", "layerwise-lpt", "static", "canzona"]
assert all(r["check"]["passed"] for r in record["results"])
# A bound that anything meets, or a comparison of next to nothing, would be no check.
assert all(r["check"]["bound"] < 1e-2 and r["check"]["compared"] > 0.1 for r in record["results"])
PY
}

run 8 2
run 5 1
run 6 2
run 16 1
