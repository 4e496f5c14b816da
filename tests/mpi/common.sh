# Sourced by the tests of ranks that are processes: how mpirun is called, and how a test fails.
# Open MPI: as root too, more ranks than cores, and waiting ranks leave the cores to others.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
# Of a build with sanitizers: what Open MPI's plugins leave behind is not ours. Ranks that are threads run the same code
# with leaks looked for.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { printf '%s\n' "$1"; [ ! -e "$folder/out" ] || cat "$folder/out"; exit 1; }

# The processes of the command whose arguments hold $1, without mpirun.
ranks_of() { pgrep -f "$canzona.*$1" | while read -r process; do [ "$(readlink "/proc/$process/exe")" = "$(readlink -f "$canzona")" ] && printf '%s\n' "$process"; done; }
