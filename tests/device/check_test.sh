#!/usr/bin/env bash
# check.sh lists every program that it would run, and each is there. Usage: check_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
listed=$("$(dirname "$0")/check.sh" --dry-run --built "$1")
for program in canzona canzona_device_tests benchmark_newton_schulz benchmark_elementwise benchmark_collectives; do
  [ -x "$1/$program" ] || { printf '%s is not there\n' "$1/$program"; exit 1; }
  grep -qE "/$program( |\$)" <<<"$listed" || { printf 'no command runs %s:\n%s\n' "$program" "$listed"; exit 1; }
done
