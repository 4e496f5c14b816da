#!/usr/bin/env bash
# The three floors: reference includes nothing of ours above it, optimized only reference, harness both. Usage: floors.sh CHECKOUT
set -u
cd "$1" || exit 1
status=0
check() { # FLOOR FORBIDDEN: no file of FLOOR includes a header of FORBIDDEN
  local found
  found=$(grep -rnE "^#include \"($2)/" --include='*.[ch]pp' --include='*.cu*' "$1")
  if [ -n "$found" ]; then
    printf '%s/ may not include %s/:\n%s\n' "$1" "$2" "$found"
    status=1
  fi
}
check reference 'optimized|harness|tests'
check optimized 'harness|tests'
check harness 'tests'
exit $status
