# Runs on the phone as work begins: says what Android may slow it down for (screen off, doze, battery saver); with hold=yes it
# asks Android not to, and says again how it is. Before it: folder, hold. What Android refuses or lacks stays as it is.
# mksh, toybox; nothing newer than Android 8.

umask 077

say() {
  echo "state"
  dumpsys power | grep mWakefulness=
  echo "doze $(dumpsys deviceidle get deep) $(dumpsys deviceidle get light)"
  echo "saver $(settings get global low_power)"
} 2>/dev/null

# How to change it back, on disk before it is changed; the keeper runs this in the end.
note() {
  echo "$*" >>"$folder/undo"
}

hold_screen() {
  stay=$(settings get global stay_on_while_plugged_in)
  case $stay in
    null) note settings delete global stay_on_while_plugged_in ;;
    "" | *[!0-9]*) return ;;
    *) note settings put global stay_on_while_plugged_in "$stay" ;;
  esac
  case $(dumpsys power | grep mWakefulness=) in
    *mWakefulness=Awake*) ;;
    *) note input keyevent KEYCODE_SLEEP ;;
  esac
  svc power stayon true
  input keyevent KEYCODE_WAKEUP
} >/dev/null 2>&1

hold_doze() {
  [ "$(dumpsys deviceidle enabled)" = 1 ] || return
  note dumpsys deviceidle enable
  dumpsys deviceidle disable
} >/dev/null 2>&1

hold_saver() {
  [ "$(settings get global low_power)" = 1 ] || return
  note settings put global low_power 1
  settings put global low_power 0
} >/dev/null 2>&1

say
[ "$hold" = yes ] || exit 0
hold_screen
hold_doze
hold_saver
say
exit 0
