# Sourced by the stand-in for sbatch once it knows a job, its $folder, $environment, $signal and $output: how the job lives.
# shellcheck shell=bash
# shellcheck disable=SC2154 # those are sbatch's
job='' code=0

# Microseconds, of the clock and of seconds with a point.
now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }
microseconds() { awk -v seconds="$1" 'BEGIN { printf "%d", 1e6 * seconds }'; }
# Signals all processes of the job: ranks have process groups of their own, but its session.
all() { pkill "-$1" --session "$job" || true; }

# Runs the job once, with a limit in seconds or without; sets code.
run() {
  local limit=${1-} grace kill_at='' requeued=''
  grace=$(microseconds "${FAKE_SLURM_GRACE:-5}")
  setsid env --default-signal=INT,QUIT "${environment[@]}" "$folder/slurm_script" "${arguments[@]}" </dev/null >>"$output" 2>&1 &
  job=$!
  [ ! "$limit" ] || limit=$(($(now) + $(microseconds "$limit")))
  {
    while kill -0 "$job"; do
      if [ ! "$requeued" ] && [ -e "$folder/requeue" ] && pgrep --session "$job" >/dev/null; then
        requeued=yes kill_at=$(($(now) + grace))
        all TERM
      elif [ "$limit" ] && [ "$(now)" -ge "$limit" ]; then
        limit='' kill_at=$(($(now) + grace))
        if [ "$signal" ]; then kill -s "$signal" "$job" || true; else all TERM; fi
      elif [ "$kill_at" ] && [ "$(now)" -ge "$kill_at" ]; then
        all KILL
      fi
      sleep 0.05
    done
    code=0
    wait "$job" || code=$?
    all KILL
  } 2>/dev/null # the shell says who was killed
}

# Runs it again for as long as that is asked for, thrice at most.
supervise() {
  trap 'all KILL' TERM INT
  [ ! "$temporary" ] || trap 'rm -rf "$temporary"' EXIT
  run "${FAKE_SLURM_TIME_LIMIT-}"
  for restart in 1 2 3; do
    [ -e "$folder/requeue" ] || break
    rm "$folder/requeue"
    export SLURM_RESTART_COUNT=$restart
    [ "${option[open-mode]-}" = append ] || : >"$output"
    run
  done
  touch "$folder/ended"
  rm -f "$folder/requeue"
  return "$code"
}
