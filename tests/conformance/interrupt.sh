#!/usr/bin/env bash
# Ctrl-C leaves finished records whole and nothing half written. Usage: interrupt.sh CANZONA
set -u
canzona=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { printf '%s\n' "$1"; exit 1; }

# A verification that takes minutes, interrupted: exit code 130, no JSON.
"$canzona" verify --iterations 30 --json "$folder/verify.json" >"$folder/out" 2>&1 &
sleep 1
kill -INT $!
wait $!
[ $? -eq 130 ] || fail "verify: exit code was not 130"
[ ! -e "$folder/verify.json" ] || fail "verify: wrote its JSON although interrupted"

# An experiment of many large points, interrupted: every record that is there is whole.
meshes=$(for dp in $(seq 2048 2447); do printf '{dp = %d, tp = 8}, ' "$dp"; done)
cat >"$folder/long.toml" <<TOML
title = "Long"
kind = "load"
models = ["qwen3-32b"]
strategies = ["canzona"]
optimizers = ["muon"]
meshes = [$meshes]
TOML
"$canzona" reproduce --experiments "$folder/long.toml" --results "$folder/results" --report "$folder/report.md" >"$folder/out" 2>&1 &
for _ in $(seq 600); do
  [ -z "$(find "$folder/results/long" -name '*.json' 2>/dev/null)" ] || break
  sleep 0.1
done
kill -INT $!
wait $!
[ $? -eq 130 ] || fail "reproduce: exit code was not 130: $(cat "$folder/out")"
[ ! -e "$folder/report.md" ] || fail "reproduce: wrote its report although interrupted"
[ -z "$(find "$folder" -name '*.part')" ] || fail "reproduce: left a part of a file"
for record in "$folder"/results/long/*.json; do
  python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$record" || fail "$record is not whole"
done
