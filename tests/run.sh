#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Usage: tests/run.sh [--preset release|debug|sanitize|thread]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
while [ $# -gt 0 ]; do
  case "$1" in
    --preset)
      [ $# -ge 2 ] || { printf -- '--preset needs a name: release, debug, sanitize, thread\n' >&2; exit 2; }
      preset=$2
      shift 2
      ;;
    -h | --help) sed -n '2s/^# //p' "$0"; exit 0 ;;
    *) printf "unknown argument '%s'; allowed: --preset NAME\n" "$1" >&2; exit 2 ;;
  esac
done
case "$preset" in
  release | debug | sanitize | thread) ;;
  *) printf "preset is '%s', allowed: release, debug, sanitize, thread\n" "$preset" >&2; exit 2 ;;
esac

cmake/install-dependencies.sh
cmake --preset "$preset"
cmake --build --preset "$preset"
exec ctest --preset "$preset"
