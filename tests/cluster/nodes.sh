#!/usr/bin/env bash
# A cluster on one machine, for programs of MPI: each node has a host name, a network interface, a monotonic clock (1000 s
# ahead of the node before), shared memory and System V IPC of its own (namespaces of Linux), a bridge joins them, and mpirun starts its daemons on them through a stand-in for
# ssh, which as ssh leaves the environment behind. Files, process numbers and cores are common to all nodes.
# Usage: nodes.sh [--first] NODES RANKS_PER_NODE COMMAND...
#   runs COMMAND as NODES × RANKS_PER_NODE ranks, node by node; with --first once, on the first node, where every mpirun
#   knows the nodes as it would in an allocation ($OMPI_MCA_plm_rsh_agent HOST COMMAND... then runs on another)
# Exit code: COMMAND's; 77 where this machine does not allow namespaces; 2: wrong arguments.
# Nothing is left behind, however it ends: the cluster is a process namespace that goes with this script.
set -euo pipefail
fail() { printf 'nodes.sh: %s\n' "$2" >&2; exit "$1"; }

# What runs inside, as the first process of the cluster: FOLDER FIRST NODES RANKS_PER_NODE COMMAND...
cluster() {
  local folder=$1 first=$2 nodes=$3 ranks=$4 node name
  shift 4
  mount -t tmpfs nodes "$folder"
  cat >"$folder/enter" <<'ENTER'
#!/usr/bin/env bash
# In place of ssh: HOST COMMAND...
process=$(cat "$(dirname "$0")/$1") || { printf 'no host %s\n' "$1" >&2; exit 255; }
shift
exec nsenter --target "$process" --net --uts --ipc --mount --time -- env --ignore-environment PATH="$PATH" HOME="$HOME" bash -c "$*"
ENTER
  chmod +x "$folder/enter"
  printf '127.0.0.1 localhost\n' >"$folder/hosts"
  for ((node = 0; node < nodes; node++)); do
    printf '10.77.0.%d node%d\n' $((node + 1)) "$node" >>"$folder/hosts"
    printf 'node%d slots=%d\n' "$node" "$ranks" >>"$folder/hostfile"
  done
  mount --bind "$folder/hosts" /etc/hosts

  ip link add switch type bridge
  ip link set switch up
  for ((node = 0; node < nodes; node++)); do
    name=node$node
    # shellcheck disable=SC2016 # for the node's own shell
    unshare --net --uts --ipc --mount --time --monotonic $((1000 * node)) --fork bash -ec 'hostname "$1"; mount -t tmpfs shm /dev/shm; printf "%s" $$ >"$2.part"
      mv "$2.part" "$2"; exec sleep infinity' node "$name" "$folder/$name" &
    for _ in {1..200}; do [ ! -e "$folder/$name" ] || break; sleep 0.05; done
    [ -e "$folder/$name" ] || fail 1 "$name did not start"
    ip link add "port$node" type veth peer name eth0 netns "$(<"$folder/$name")"
    ip link set "port$node" master switch up
    "$folder/enter" "$name" "ip link set lo up; ip address add 10.77.0.$((node + 1))/24 dev eth0; ip link set eth0 up"
  done

  # shellcheck source=/dev/null
  . <(grep '^export OMPI' "$(dirname "$0")/../mpi/common.sh")
  export OMPI_MCA_plm_rsh_agent=$folder/enter OMPI_MCA_orte_default_hostfile=$folder/hostfile OMPI_MCA_orte_tmpdir_base=/dev/shm
  [ "$first" ] || set -- mpirun -np $((nodes * ranks)) ${ASAN_OPTIONS:+-x ASAN_OPTIONS} "$@"
  nsenter --target "$(<"$folder/node0")" --net --uts --ipc --mount --time --wd="$PWD" -- env --default-signal=INT,QUIT "$@" <&0 &
  local job=$! code=0
  trap 'kill -TERM "$job"' TERM
  # A signal ends the first wait; the command makes its own end.
  while kill -0 "$job" 2>/dev/null; do code=0; wait "$job" || code=$?; done
  exit "$code"
}
if [ "${1-}" = --inside ]; then shift; cluster "$@"; fi

first=
[ "${1-}" != --first ] || { first=yes; shift; }
[[ $# -ge 3 && "$1" =~ ^[1-9][0-9]?$ && "$2" =~ ^[1-9][0-9]*$ ]] ||
  fail 2 'usage: nodes.sh [--first] NODES RANKS_PER_NODE COMMAND..., up to 99 nodes'
for program in unshare nsenter setpriv ip mpirun; do
  command -v "$program" >/dev/null || fail 77 "skipped: $program is not installed"
done

# Who is not root is root in a user namespace, where the system lets him.
isolate=(unshare --net --mount --pid --fork --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || isolate+=(--user --map-root-user)
reason=$("${isolate[@]}" bash -ec 'ip link add switch type bridge; ip link add port type veth peer name eth0
  mount -t tmpfs shm /dev/shm; unshare --uts --ipc --net --time true' 2>&1) ||
  fail 77 "skipped: this machine does not allow namespaces: $(tail -n 1 <<<"$reason")"

folder=$(mktemp -d)
trap 'rmdir "$folder"' EXIT
setpriv --pdeathsig KILL "${isolate[@]}" bash "$0" --inside "$folder" "$first" "$@" <&0 &
outer=$! code=0
# Of the two processes of unshare the first hears no signals: it waits for the cluster.
trap 'kill -TERM "$(pgrep --parent "$outer")"' INT TERM
while kill -0 "$outer" 2>/dev/null; do code=0; wait "$outer" || code=$?; done
exit "$code"
