# Runs on the phone as work begins. Prints whether the screen is on, and whether doze and battery saver are active, as each can
# slow the phone down. With keep_awake=yes, turns the screen on and the others off, as far as Android allows, and prints the state
# again. Set before it: folder, keep_awake. For mksh and toybox; uses nothing newer than Android 8.

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

keep_screen_on() {
  stay=$(settings get global stay_on_while_plugged_in)
  case $stay in
    null) note_undo settings delete global stay_on_while_plugged_in ;;
    "" | *[!0-9]*) return ;;
    *) note_undo settings put global stay_on_while_plugged_in "$stay" ;;
  esac
  case $(dumpsys power | grep mWakefulness=) in
    *mWakefulness=Awake*) ;;
    *) note_undo input keyevent KEYCODE_SLEEP ;;
  esac
  svc power stayon true
  input keyevent KEYCODE_WAKEUP
} >/dev/null 2>&1

disable_doze() {
  [ "$(dumpsys deviceidle enabled)" = 1 ] || return
  note_undo dumpsys deviceidle enable
  dumpsys deviceidle disable
} >/dev/null 2>&1

disable_battery_saver() {
  [ "$(settings get global low_power)" = 1 ] || return
  note_undo settings put global low_power 1
  settings put global low_power 0
} >/dev/null 2>&1

print_state
[ "$keep_awake" = yes ] || exit 0
keep_screen_on
disable_doze
disable_battery_saver
print_state
exit 0
