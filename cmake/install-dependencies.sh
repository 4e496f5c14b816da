#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that this project needs and that are missing, and says which. Uses sudo only when not root.
set -euo pipefail

packages=(
  g++ cmake ninja-build git
  libeigen3-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev
  libopenblas-dev libopenmpi-dev openmpi-bin procps
  libgtest-dev libbenchmark-dev clang-format iproute2 shellcheck
  python3-matplotlib
)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  printf 'This is no Debian or Ubuntu. Needed here under whatever name: %s\n' "${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  printf 'All %d packages are installed.\n' "${#packages[@]}"
  exit 0
fi

printf 'Installing: %s\n' "${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    printf 'Not root and no sudo: ask an administrator for these packages.\n' >&2
    exit 2
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
printf 'Installed.\n'
