# Runs on the phone as work begins. Prints whether the screen is on, and whether doze and battery saver are active, as each can
# slow the phone down. With keep_awake=yes, turns the screen on and the others off, as far as Android allows, prints what was changed
# and what was refused, and the state again. Set before it: folder, keep_awake. For mksh and toybox; uses nothing newer than Android 8.

umask 077

print_state() {
  echo "state"
  dumpsys power | grep mWakefulness=
  echo "doze $(dumpsys deviceidle get deep) $(dumpsys deviceidle get light)"
  echo "saver $(settings get global low_power)"
} 2>/dev/null

# Write down how to restore a setting before it is changed; the watchdog runs this file at the end.
note_undo() {
  echo "$*" >>"$folder/undo"
}

# Print whether Android changed a value: NAME BEFORE NOW. Some limit what they are given.
report_change() {
  if [ "$2" = "$3" ]; then echo "refused $1"; else echo "changed $1"; fi
}

# NAMESPACE NAME VALUE
change_setting() {
  old=$(settings get "$1" "$2" 2>/dev/null)
  [ "$old" = "$3" ] && return
  case $old in
    null) note_undo settings delete "$1" "$2" ;;
    "" | *[!0-9-]*) echo "refused $2"; return ;;
    *) note_undo settings put "$1" "$2" "$old" ;;
  esac
  settings put "$1" "$2" "$3" >/dev/null 2>&1
  report_change "$2" "$old" "$(settings get "$1" "$2" 2>/dev/null)"
}

keep_screen_on() {
  change_setting global stay_on_while_plugged_in 7
  change_setting system screen_off_timeout 2147483647 # on battery; Android's own limit, 24 days
  case $(dumpsys power | grep mWakefulness=) in
    *mWakefulness=Awake*) return ;;
  esac
  note_undo input keyevent KEYCODE_SLEEP
  input keyevent KEYCODE_WAKEUP >/dev/null 2>&1
  report_change screen "" "$(dumpsys power | grep mWakefulness=Awake)"
}

disable_doze() {
  [ "$(dumpsys deviceidle enabled)" = 1 ] || return
  note_undo dumpsys deviceidle enable
  dumpsys deviceidle disable >/dev/null
  report_change doze 1 "$(dumpsys deviceidle enabled)"
}

disable_battery_saver() {
  [ "$(settings get global low_power)" = 1 ] && change_setting global low_power 0
}

print_state
[ "$keep_awake" = yes ] || exit 0
{
  keep_screen_on
  disable_doze
  disable_battery_saver
} 2>/dev/null
print_state
exit 0
