#!/usr/bin/env bash
# The whole path of experiments/cluster.sh on the host: killed in the middle and started again, it repeats no finished point
# and ends with the same set of records. Usage: study_test.sh CANZONA
set -euo pipefail
canzona=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/mpi/common.sh"
out=$folder/study
# shellcheck disable=SC2054 # commas within a value
study=("$root/experiments/cluster.sh" --backend host --nodes 1 --ranks-per-node 2 --tp 1 --model qwen3-tiny --optimizers muon
  --strategies synchronous,canzona --checks qwen3-tiny --samples qwen3-tiny --repeats 2 --steps 2 --built "$(dirname "$canzona")" --out "$out")

# Beforehand: every command, and nothing done.
"${study[@]}" --dry-run >"$folder/out" 2>&1 || fail 'dry run: it failed'
for command in environment 'run .*--check' 'run .*--check=1 --seed 2' calibrate 'run .*--predict' collect pack; do
  grep -q "canzona $command" "$folder/out" || fail "dry run: no '$command'"
done
[ "$(grep -c -- '--predict' "$folder/out")" = 4 ] || fail 'dry run: not every point'
[ ! -e "$out" ] || fail 'dry run: it wrote'

# Killed when the first points are there.
"${study[@]}" >"$folder/out" 2>&1 &
script=$!
for _ in $(seq 3000); do
  [ "$(find "$out/records" -name '*.json' 2>/dev/null | wc -l)" -lt 2 ] || break
  kill -0 "$script" 2>/dev/null || fail 'it ended before it was killed'
  sleep 0.1
done
kill -KILL "$script"
wait "$script" 2>/dev/null || true
before=$(find "$out/records" "$out/checks" "$out/clusters" -type f -printf '%p %T@\n' | sort)
[ "$(wc -l <<<"$before")" -ge 4 ] || fail 'it was killed too early'

"${study[@]}" >"$folder/out" 2>&1 || fail "started again: exit code $?"
after=$(find "$out/records" "$out/checks" "$out/clusters" -type f -printf '%p %T@\n' | sort)
while read -r line; do
  case "$line" in *.part*) continue ;; esac
  grep -qxF "$line" <<<"$after" || fail "repeated: $line"
done <<<"$before"
expected=$(for strategy in canzona synchronous; do for repeat in 1 2; do echo "qwen3-tiny-dp2-tp1-$strategy-muon-$repeat.json"; done; done)
[ "$(cd "$out/records" && ls)" = "$expected" ] || fail "other records: $(ls "$out/records")"
[ -z "$(ls "$out/failed")" ] || fail 'a point failed'
grep -q 'finished before' "$folder/out" || fail 'nothing was taken over'
grep -q '^canzona .*([-+][0-9]* %)' "$folder/out" || fail 'no prediction beside what was measured'
for part in 'optimizer step ms' '## Equal to one device' '| 18 of 18 |' '| 7 of 18 |' '| yes |' '## Where'; do
  grep -qF "$part" "$out/report.md" || fail "the report lacks '$part'"
done

# What leaves the house: every record, and no host.
mkdir "$folder/shared"
tar -xzf "$out/study.tar.gz" -C "$folder/shared"
[ "$(find "$folder/shared/study/records" -name '*.json' | wc -l)" = 4 ] || fail 'the archive lacks records'
! grep -rwF "$(hostname)" "$folder/shared" >"$folder/out" || fail 'the archive names a host'
! grep -rF "$out" "$folder/shared" >"$folder/out" || fail 'the archive names a folder of this machine'

# Other conditions, another folder.
! "${study[@]}" --tokens 128 >"$folder/out" 2>&1 || fail 'another study went into the same folder'
grep -q 'tokens 128' "$folder/out" || fail 'the difference is not named'

# A point that fails is told with its reason, the rest goes on, and what failed is tried again.
rm -rf "$out/records" "$out/clusters"
mkdir "$out/records"
! "${study[@]}" --strategies canzona,wrong --repeats 1 >"$folder/out" 2>&1 || fail 'failed: exit code 0'
grep -q "FAILED, exit code 2: canzona: .*'wrong'" "$folder/out" || fail 'failed: the reason is not told'
[ -e "$out/records/qwen3-tiny-dp2-tp1-canzona-muon-1.json" ] || fail 'failed: the rest did not go on'
grep -q 'What failed' "$out/report.md" || fail 'failed: the report does not tell'
