# Runs on the phone during a session. Holds the lock, reads heartbeats from stdin, and cleans up when the session ends, when
# stdin ends (cable pulled) or when no heartbeat arrives for too long. After lock.sh. Set before it: program, nonce, holder, timeout.
# For mksh and toybox; uses nothing newer than Android 8.

umask 077 # these files reveal something about a user's text

# Ids of the processes that sessions started: those with the program's path in their command line. The pattern is split, so
# that neither this script nor grep matches it. With "programs", leave out the shells that wait for a program and report its
# status. One grep reads all command lines: a phone runs hundreds of processes, and a grep for each takes seconds. On Android
# 8 to 10, BSD's grep ends the names with NULs, which $(...) would drop, joining all names into one.
session_processes() {
  rest=${program#?}
  for line in $(grep -lz -e "$folder/[${program%"$rest"}]$rest" /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'); do
    [ "$1" = programs ] && grep -qz phonograd-end- "$line" 2>/dev/null && continue
    line=${line#/proc/}
    echo "${line%/cmdline}"
  done
}

# End them: SIGTERM to the programs first, so that their shells can still report the status, then SIGKILL to all.
end_processes() {
  for signal in "TERM programs" "KILL all"; do
    found=$(session_processes "${signal#* }")
    [ -z "$found" ] || kill -"${signal% *}" $found 2>/dev/null
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
      [ -z "$(session_processes all)" ] && return 0
      sleep 0.2
    done
  done
}

# End programs, restore the Android settings that the session changed, remove its transient files.
clean_up() {
  end_processes
  [ -f "$folder/undo" ] && sh "$folder/undo" >/dev/null 2>&1
  rm -rf "$folder/undo" "$folder/run"
}

# Remove the files that sessions pushed, which $folder/pushed lists, and what taking the lock left at an earlier boot.
remove_pushed() {
  for name in "$folder"/probe.* "$folder"/lock.*; do
    [ -f "$name" ] && ! grep -qF -e "$boot" "$name" && rm -f "$name"
  done
  if [ -f "$folder/pushed" ]; then
    while read -r name; do rm -f "$folder/$name" "$folder/$name.part"; done <"$folder/pushed"
    rm -f "$folder/pushed"
  fi
  find "$folder" -depth -type d -exec rmdir {} \; 2>/dev/null
}

# The lock is a file, created only if it does not exist: this process, boot id, nonce, and who holds it.
take_lock() {
  (set -C && echo "$$ $boot $nonce $holder" >"$lock") 2>/dev/null
}

# Take over a stale lock; if two try at once, one gets it.
take_over_lock() {
  found=$(cat "$lock" 2>/dev/null)
  if [ -z "$found" ]; then # it is being written, or its writer died
    sleep 1
    found=$(cat "$lock" 2>/dev/null)
  fi
  if is_held $found; then
    other=$found
    return 1
  fi
  mv "$lock" "$lock.$nonce" 2>/dev/null
  if [ "$(cat "$lock.$nonce" 2>/dev/null)" != "$found" ]; then # another one was faster, and this is its lock
    mv "$lock.$nonce" "$lock"
    other=$(cat "$lock")
    return 1
  fi
  rm -f "$lock.$nonce"
  leftovers=yes
  take_lock || { other=$(cat "$lock" 2>/dev/null); return 1; }
}

# Can a file be written? On a full disk a file can be created but stays empty, as the lock would.
can_write() {
  mkdir -p "$folder" && chmod 700 "$folder" && echo "$boot" >"$folder/probe.$nonce" && [ -s "$folder/probe.$nonce" ]
  found=$?
  rm -f "$folder/probe.$nonce"
  return "$found"
} 2>/dev/null

watchdog_main() {
  leftovers=no
  if ! can_write; then
    echo "refused"
    return
  fi
  take_lock
  case "$(cat "$lock")" in
    *" $nonce "*) ;;
    *) take_over_lock || { echo "busy $other"; return; } ;;
  esac
  [ -e "$folder/run" ] && leftovers=yes
  clean_up
  mkdir -p "$folder/run" || { rm -f "$lock"; echo "refused"; return; }
  echo "ready $leftovers $boot"
  reason=
  while [ -z "$reason" ]; do
    read -r -t "$timeout" word
    case $? in
      0) [ "$word" = beat ] || reason=$word ;;
      1) reason=disconnected ;;
      *) reason=timeout ;; # mksh: a status above 128 is a timeout
    esac
  done
  echo "ending $reason"
  clean_up
  rm -f "$lock"
  [ "$reason" = remove-files ] && remove_pushed
  echo "ended"
}

# When the cable is pulled, adbd sends SIGHUP and closes stdin. Ignore the signal; the end of stdin is what counts.
trap '' HUP PIPE
watchdog_main
