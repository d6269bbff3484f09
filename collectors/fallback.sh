# Reads a host that has no Python: nvidia-smi where there is one, and /proc by the shell.
# Sent as one line inside single quotes (see nvidia_smi.py, which joins these lines), so:
# no single quote, no exclamation mark but in "$! " with the blank after it, no here-document.
#
# Three shells: this one follows stdin and ends all when it closes; $M reads /proc every
# $I seconds; $W runs nvidia-smi, one after the other, so that a second one never starts
# while one hangs. Every line goes out by one write and begins with a tag:
#   ~H name value   what does not change        ~V path hardware   nvidia-smi, cards in /sys
#   ~R n ... ~E n   a round: ~U uptime ~C cpu ~L load ~M memory ~N interface ~D disk
#   ~B what         nvidia-smi starts (gpu, apps, asleep)
#   ~Q fields       the fields that this driver knows
#   ~g row  ~G status    ~a row  ~A status     its output and exit status
#   ~X reason       the end
# Given: I interval, T heartbeat timeout (both whole seconds), N nonce, Q fields.

say() { printf "%s\n" "$*"; }
# the children of a process, by the fourth field of their stat
kids() {
  for s in /proc/[0-9]*/stat; do
    read -r k x y q z 2>/dev/null <"$s" && [ "$q" = "$1" ] && echo "$k"
  done
}
# stopped first: it must not start another nvidia-smi while its children are killed
fell() {
  kill -STOP "$1" 2>/dev/null
  for j in $(kids "$1"); do
    for i in $(kids "$j"); do kill -9 "$i" 2>/dev/null; done
    kill -9 "$j" 2>/dev/null
  done
  kill -9 "$1" 2>/dev/null
}

identify() {
  say "~H hostname $(uname -n)"
  say "~H kernel $(uname -r)"
  o=$(uname -s)
  for f in /etc/os-release /usr/lib/os-release; do
    if [ -r "$f" ]; then
      while read -r l; do
        case "$l" in PRETTY_NAME=*) o=${l#PRETTY_NAME=}; o=${o#\"}; o=${o%\"} ;; esac
      done <"$f"
      break
    fi
  done
  say "~H os $o"
  if [ -r /proc/cpuinfo ]; then
    say "~H cpu_model $(grep -m 1 "^model name" /proc/cpuinfo | sed "s/^[^:]*: *//")"
    say "~H cpu_count $(grep -c "^processor" /proc/cpuinfo)"
  fi
  [ -e /.dockerenv ] && say "~H container docker"
  [ -e /run/.containerenv ] && say "~H container podman"
  say "~H end"
}

# cards of NVIDIA in /sys and the kernel driver that holds them; A counts those awake
cards() {
  C=0
  A=0
  D=none
  for v in /sys/bus/pci/devices/*/vendor; do
    [ -r "$v" ] || continue
    read -r l <"$v"
    [ "$l" = 0x10de ] || continue
    p=${v%vendor}
    read -r l <"${p}class"
    case "$l" in
      0x03*)
        C=$((C+1))
        l=on
        [ -r "${p}power/runtime_status" ] && read -r l <"${p}power/runtime_status"
        case "$l" in suspend*) ;; *) A=$((A+1)) ;; esac
        D=unbound
        [ -e "${p}driver" ] && D=$(readlink "${p}driver") && D=${D##*/}
      ;;
    esac
  done
}

round() {
  say "~R $n"
  if [ -r /proc/uptime ]; then read -r l </proc/uptime; say "~U $l"; fi
  if [ -r /proc/stat ]; then read -r l </proc/stat; say "~C $l"; fi
  if [ -r /proc/loadavg ]; then read -r l </proc/loadavg; say "~L $l"; fi
  if [ -r /proc/meminfo ]; then
    while read -r l; do
      case "$l" in MemTotal*|MemFree*|MemAvail*|Buffers*|Cached*|SwapTotal*|SwapFree*) say "~M $l" ;; esac
    done </proc/meminfo
  fi
  if [ -r /proc/net/dev ]; then
    while read -r l; do
      case "$l" in
        *:*) if [ -e "/sys/class/net/${l%%:*}/device" ]; then say "~N 1 $l"; else say "~N 0 $l"; fi ;;
      esac
    done </proc/net/dev
  fi
  [ $((n % 5)) -eq 0 ] && df -Pk / 2>/dev/null | while read -r l; do say "~D $l"; done
  say "~E $n"
}

# nvidia-smi answers an unknown field with exit status 2 and its name: leave it out, again
ask_gpus() {
  while [ -n "$Q" ]; do
    say "~B gpu"
    o=$("$S" "--query-gpu=$Q" --format=csv,noheader,nounits 2>&1)
    r=$?
    [ $r -eq 2 ] || break
    case "$o" in *"is not a valid field"*) ;; *) break ;; esac
    f=${o#*ield ?}
    f=${f%%? is not a valid*}
    case ",$Q," in *",$f,"*) ;; *) break ;; esac
    q=",$Q,"
    q="${q%%,"$f",*},${q#*,"$f",}"
    q=${q#,}
    Q=${q%,}
  done
  say "~Q $Q"
  printf "%s\n" "$o" | while IFS= read -r l; do printf "~g %s\n" "$l"; done
  say "~G $r"
}
ask_apps() {
  say "~B apps"
  o=$("$S" --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv,noheader,nounits 2>&1)
  r=$?
  printf "%s\n" "$o" | while IFS= read -r l; do printf "~a %s\n" "$l"; done
  say "~A $r"
}
watch_gpus() {
  trap - TERM
  w=0
  while :; do
    cards
    if [ "$C" -gt 0 ] && [ "$A" -eq 0 ]; then
      say "~B asleep"
    else
      ask_gpus
      [ $((w % 3)) -eq 0 ] && ask_apps
    fi
    w=$((w+1))
    sleep "$I"
  done
}
watch_host() {
  trap "b=0" USR1
  trap - TERM
  n=0
  b=0
  while :; do
    round
    n=$((n+1))
    b=$((b+I))
    if [ "$b" -gt "$T" ]; then
      say "~X no heartbeat for $T s"
      [ -n "$W" ] && fell "$W"
      kill -9 $$
      exit 0
    fi
    sleep "$I" &
    c=$! ; wait "$c"
    # a heartbeat ends the wait early
    while kill -0 "$c" 2>/dev/null; do wait "$c"; done
  done
}

trap "" INT HUP USR1
printf "\036%s\n" "$N"
identify
S=
for p in nvidia-smi /usr/lib/wsl/lib/nvidia-smi /usr/bin/nvidia-smi /usr/local/nvidia/bin/nvidia-smi /opt/bin/nvidia-smi /run/current-system/sw/bin/nvidia-smi; do
  if command -v "$p" >/dev/null 2>&1; then S=$p; break; fi
done
cards
say "~V ${S:-none} $D"
W=
if [ -n "$S" ]; then
  watch_gpus </dev/null &
  W=$! ;
fi
watch_host </dev/null &
M=$! ;
while read -r l; do kill -USR1 "$M" 2>/dev/null || break; done
[ -n "$W" ] && fell "$W"
fell "$M"
say "~X the client closed the connection"
exit 0
