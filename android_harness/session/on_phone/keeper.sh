# Runs on the phone for as long as a session lasts: holds the lock, hears a heartbeat on stdin, and undoes everything when
# the session ends, the cable is pulled (end of stdin) or the host falls silent. Before it: folder, program, nonce, owner,
# silence. mksh, toybox; nothing newer than Android 8.

umask 077 # what is here tells of somebody's text
lock=$folder/lock
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init)

# Is process $1 one of ours? Numbers are used again: it must have $2 in its command line.
lives() {
  [ -n "$1" ] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -e "$2"
}

# Processes that sessions started: those with the program's path in their command line, which this script has in two parts
# and grep's own as [p]hono... With "programs", not the shells that wait for one and tell how it ended. One grep reads all
# command lines: a phone runs hundreds of processes, and starting one for each takes seconds. Android 8 to 10 have BSD's
# grep, which ends the names with NULs; $(...) would drop those, and all names would be one.
started() {
  rest=${program#?}
  for line in $(grep -lz -e "$folder/[${program%"$rest"}]$rest" /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'); do
    [ "$1" = programs ] && grep -qz phonograd-end- "$line" 2>/dev/null && continue
    line=${line#/proc/}
    echo "${line%/cmdline}"
  done
}

# End them: programs politely, so that their shells can still tell; then whatever is left, for sure.
sweep() {
  for ending in "TERM programs" "KILL all"; do
    found=$(started "${ending#* }")
    [ -z "$found" ] || kill -"${ending% *}" $found 2>/dev/null
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
      [ -z "$(started all)" ] && return 0
      sleep 0.2
    done
  done
}

# What a session changed in Android's settings, changed back; its transient files with it.
undo() {
  sweep
  [ -f "$folder/undo" ] && sh "$folder/undo" >/dev/null 2>&1
  rm -rf "$folder/undo" "$folder/run"
}

# What sessions pushed, listed in $folder/pushed.
tidy() {
  if [ -f "$folder/pushed" ]; then
    while read -r name; do rm -f "$folder/$name" "$folder/$name.part"; done <"$folder/pushed"
    rm -f "$folder/pushed"
  fi
  find "$folder" -depth -type d -exec rmdir {} \; 2>/dev/null
}

# The lock is one file, made by whoever is first, with the keeper's process, the boot it lives in, and whose it is.
take() {
  (set -C && echo "$$ $boot $nonce $owner" >"$lock") 2>/dev/null
}

# Take over the lock of a keeper that is gone; of two that try, one has it.
take_over() {
  found=$(cat "$lock" 2>/dev/null)
  if [ -z "$found" ]; then # being written now, or by somebody who died over it
    sleep 1
    found=$(cat "$lock" 2>/dev/null)
  fi
  set -- $found
  if [ "$2" = "$boot" ] && lives "$1" "$3"; then
    holder=$found
    return 1
  fi
  mv "$lock" "$lock.$nonce" 2>/dev/null
  if [ "$(cat "$lock.$nonce" 2>/dev/null)" != "$found" ]; then # another one was quicker, and this is its lock
    mv "$lock.$nonce" "$lock"
    holder=$(cat "$lock")
    return 1
  fi
  rm -f "$lock.$nonce"
  leftovers=yes
  take || { holder=$(cat "$lock" 2>/dev/null); return 1; }
}

# Can a file be written? On a full disk one can be made, and stays empty, as the lock would.
writable() {
  mkdir -p "$folder" && chmod 700 "$folder" && echo "$nonce" >"$folder/probe.$nonce" && [ -s "$folder/probe.$nonce" ]
  found=$?
  rm -f "$folder/probe.$nonce"
  return "$found"
} 2>/dev/null

keep_watch() {
  leftovers=no
  if ! writable; then
    echo "refused"
    return
  fi
  take
  case "$(cat "$lock")" in
    *" $nonce "*) ;;
    *) take_over || { echo "busy $holder"; return; } ;;
  esac
  [ -e "$folder/run" ] && leftovers=yes
  undo
  mkdir -p "$folder/run" || { rm -f "$lock"; echo "refused"; return; }
  echo "ready $leftovers $boot"
  goodbye=
  while [ -z "$goodbye" ]; do
    read -r -t "$silence" word
    case $? in
      0) [ "$word" = beat ] || goodbye=$word ;;
      1) goodbye=lost ;;
      *) goodbye=silence ;; # mksh: more than 128 is a timeout
    esac
  done
  echo "ending $goodbye"
  undo
  rm -f "$lock"
  [ "$goodbye" = tidy ] && tidy
  echo "ended"
}

# When the cable is pulled, adbd sends SIGHUP and closes stdin: the end of stdin is what is waited for.
trap '' HUP PIPE
keep_watch
