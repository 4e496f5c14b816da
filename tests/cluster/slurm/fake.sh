# Sourced by the stand-ins for Slurm's commands, which a test puts first on its PATH: they do here what Slurm does
# on a cluster, as far as our scripts meet it, and refuse in Slurm's words whatever else they are asked. What is
# simpler than Slurm is stricter.
# shellcheck shell=bash
program=${0##*/}
refuse() { printf '%s: error: %s\n' "$program" "$1" >&2; exit 1; }

declare -A option=() long_of=([A]=account [D]=chdir [J]=job-name [N]=nodes [W]=wait [c]=cpus-per-task [n]=ntasks [o]=output
  [p]=partition [t]=time)
rest=()

misused() { # WHAT, unless it was said
  [ $# -eq 0 ] || printf '%s: %s\n' "$program" "$1" >&2
  printf 'Try "%s --help" for more information\n' "$program" >&2
  exit 1
}
# read_options SHORT LONG ARGUMENT...: by getopt_long, as Slurm; sets option[LONG NAME], and rest from the first that is none.
read_options() {
  local short=$1 long=$2 parsed name word
  shift 2
  local words=("$@")
  parsed=$(getopt --name "$program" --options "+$short" --longoptions "$long" -- "$@") || misused
  eval "set -- $parsed"
  while [ "$1" != -- ]; do
    name=${1#-}
    if [ "${#name}" -eq 1 ]; then name=${long_of[$name]}; else name=${name#-}; fi
    option[$name]=
    [ "$name" != requeue ] || unset 'option[no-requeue]'
    if [[ ,$long, == *,"$name":* ]]; then option[$name]=$2; shift; fi
    shift
  done
  rest=("${@:2}")
  # Slurm's options are many: what is short for one here is short for several there.
  for word in "${words[@]:0:${#words[@]} - ${#rest[@]}}"; do
    name=${word%%=*}
    [[ $name != --?* || ,$long, == *,"${name#--}"[:,]* ]] || misused "unrecognized option '$name'"
  done
}

# Of options that are given: whole numbers, times, and words of a list.
numbers() { # NAME...
  local name
  for name; do
    [[ ! -v option[$name] || "${option[$name]}" =~ ^[1-9][0-9]*$ ]] ||
      refuse "Invalid numeric value \"${option[$name]}\" for --$name."
  done
}
check_time() {
  [[ ! -v option[time] || "${option[time]}" =~ ^([0-9]+-)?[0-9]+(:[0-5]?[0-9]){0,2}$ ]] || refuse 'Invalid --time specification'
}
words() { # NAME PATTERN
  [[ ! -v option[$1] || "${option[$1]}" =~ ^($2)$ ]] || refuse "Invalid --$1 specification: ${option[$1]}"
}
# A pattern of --output with its %j and %x filled in.
file_of() { # PATTERN
  local file=${1//%j/$SLURM_JOB_ID}
  file=${file//%x/${SLURM_JOB_NAME-}}
  [[ $file != *%* ]] || refuse "of --output=$1 this stand-in knows %j and %x alone"
  printf '%s' "$file"
}
