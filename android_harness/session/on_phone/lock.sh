# Comes before scripts that look at the lock. Set before it: folder.

lock=$folder/lock
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init)

# Is process $1 one of ours? Process ids are reused, so its command line must contain $2.
is_running() {
  [ -n "$1" ] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -e "$2"
}

# Does a living session hold the lock with this line: process, boot id, nonce, holder?
is_held() {
  [ "$2" = "$boot" ] && is_running "$1" "$3"
}
