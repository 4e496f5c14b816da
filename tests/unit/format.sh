#!/usr/bin/env bash
# All C++ sources are as .clang-format wants them. Usage: format.sh CLANG_FORMAT CHECKOUT
cd "$2" && find reference optimized harness tests \( -name '*.cpp' -o -name '*.hpp' \) -print0 | xargs -0 "$1" --dry-run --Werror
