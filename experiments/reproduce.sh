#!/usr/bin/env bash
# Installs what is missing, builds the command, proves the strategies equal, and makes every table, figure and report.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
  case "$1" in
    -h | --help) sed -n '2s/^# //p' "$0"; exit 0 ;;
    *) printf "unknown argument '%s'; reproduce.sh takes none\n" "$1" >&2; exit 2 ;;
  esac
fi

cmake/install-dependencies.sh
cmake --preset release
cmake --build --preset release --target canzona

build/release/bin/canzona verify --split-qkv none --split-fc1 off
table=$(build/release/bin/canzona reproduce)
plots/load.py --records experiments/results/load --output paper/figures
plots/step.py --records experiments/results/step --output paper/figures

printf '\n%s\n\nRecords, CSV and Markdown: experiments/results/. Report: paper/report.md\n' "$table"
