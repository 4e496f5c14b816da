#!/usr/bin/env bash
# An optimizer is one file a floor: a copy of the tree without both normuon.cpp builds and works; with the reference's put
# back, and nothing else changed, every subcommand but run finds it; with the engine's, run does. Objects of files that the copy shares with BUILD are taken from there, so that
# only what differs is compiled. Usage: extension.sh SOURCE BUILD
set -euo pipefail
source=$1
binary=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { printf '%s\n' "$1"; exit 1; }

mkdir "$folder/tree"
for entry in CMakeLists.txt cmake reference optimized harness experiments paper; do
  cp -r "$source/$entry" "$folder/tree/"
done
rm -rf "$folder/tree/experiments/results"
optimizers=$folder/tree/reference/optimizers
on_devices=$folder/tree/optimized/optimizers
mv "$optimizers/normuon.cpp" "$folder/normuon.cpp"
mv "$on_devices/normuon.cpp" "$folder/on_devices.cpp"
others=$(cd "$folder/tree" && find . -type f -exec sha256sum {} + | sort)

# A compiler launcher: "compiler … -o OBJECT -c SOURCE" copies BUILD's object of an equal source, except of the optimizer and of the file that
# knows where its tree lies.
cat >"$folder/launcher" <<LAUNCHER
#!/usr/bin/env bash
for ((i = 1; i <= \$#; ++i)); do
  case "\${!i}" in
    -o) next=\$((i + 1)); object=\${!next} ;;
    -c) next=\$((i + 1)); file=\${!next} ;;
    -MF) next=\$((i + 1)); depends=\${!next} ;;
  esac
done
own="$source\${file#"$folder/tree"}"
if [ -f "$binary/\$object" ] && cmp -s "\$file" "\$own" && [[ \$file != */normuon.cpp ]] && ! grep -q CANZONA_SOURCE_FOLDER "\$file"; then
  cp "$binary/\$object" "\$object" && printf '%s: %s\n' "\$object" "\$file" >"\$depends"
else
  printf '%s\n' "\$file" >>"$folder/compiled"
  exec "\$@"
fi
LAUNCHER
chmod +x "$folder/launcher"
build_type=$(sed -n 's/^CMAKE_BUILD_TYPE:STRING=//p' "$binary/CMakeCache.txt")
sanitize=$(sed -n 's/^CANZONA_SANITIZE:BOOL=//p' "$binary/CMakeCache.txt")
cmake -S "$folder/tree" -B "$folder/build" -G Ninja -DBUILD_TESTING=OFF -DCMAKE_BUILD_TYPE="$build_type" \
  -DCANZONA_SANITIZE="$sanitize" -DCMAKE_CXX_COMPILER_LAUNCHER="$folder/launcher" \
  -DCMAKE_CUDA_COMPILER_LAUNCHER="$folder/launcher" >"$folder/log" 2>&1 ||
  { cat "$folder/log"; fail "the tree without normuon.cpp does not configure"; }
build() { cmake --build "$folder/build" --target canzona >"$folder/log" 2>&1 || { cat "$folder/log"; fail "$1"; }; }
build "the tree without normuon.cpp does not build"
canzona=$folder/build/bin/canzona
"$canzona" list >"$folder/list"
! grep -q '^  normuon ' "$folder/list" || fail "list: normuon without its file"
grep -q '^  muon ' "$folder/list" || fail "list: no muon"
"$canzona" verify --dp 2 --tp 2 --strategy canzona --precision fp64 --split-qkv none --split-fc1 off >/dev/null ||
  fail "verify fails without normuon.cpp"

mv "$folder/normuon.cpp" "$optimizers/normuon.cpp"
build "the tree with normuon.cpp does not build"
"$canzona" list >"$folder/list"
grep -q '^  normuon ' "$folder/list" || fail "list: no normuon"
"$canzona" verify --optimizer normuon --dp 2 --tp 2 --precision fp64 --json "$folder/verify.json" >/dev/null ||
  fail "verify --optimizer normuon fails"
"$canzona" plan --optimizer normuon --json "$folder/plan.json" >/dev/null
grep -q '"optimizer": *"normuon"' "$folder/plan.json" || fail "plan: no normuon"
"$canzona" simulate --optimizer normuon --strategy canzona --json "$folder/simulate.json" >/dev/null
grep -q '"optimizer": *"normuon"' "$folder/simulate.json" || fail "simulate: no normuon"
cat >"$folder/all.toml" <<TOML
title = "All optimizers"
kind = "load"
models = ["qwen3-tiny"]
strategies = ["canzona"]
optimizers = ["all"]
meshes = [{dp = 2, tp = 2}]
TOML
"$canzona" reproduce --experiments "$folder/all.toml" --results "$folder/results" --report "$folder/report.md" >/dev/null
grep -q '| normuon |' "$folder/results/all.md" || fail "reproduce: no normuon"
grep -q '/normuon.cpp$' "$folder/compiled" || fail "normuon.cpp was not compiled"
"$canzona" run --ranks 2 --optimizer normuon --strategy canzona --steps 1 >"$folder/out" 2>&1 && fail "run: normuon without its file"
grep -q "optimizer of the engine is 'normuon'" "$folder/out" || fail "run does not say that the engine lacks normuon"

mv "$folder/on_devices.cpp" "$on_devices/normuon.cpp"
build "the tree with the engine's normuon.cpp does not build"
"$canzona" run --ranks 2 --optimizer normuon --strategy canzona --steps 1 --check >"$folder/out" 2>&1 || { cat "$folder/out"; fail "run --optimizer normuon fails"; }
rm "$optimizers/normuon.cpp" "$on_devices/normuon.cpp"
[ "$others" = "$(cd "$folder/tree" && find . -type f -exec sha256sum {} + | sort)" ] || fail "another file was changed"
