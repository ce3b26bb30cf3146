# Runs on the phone beside a run: clocks, temperatures, battery, until its session or its listener is gone. Before it:
# interval, every, rounds, alive (a path that is there as long as the session).
# Files are read by the shell itself: no process is started for them, so that sampling costs what is measured little.

zones=
for zone in /sys/class/thermal/thermal_zone*; do
  # As real phones have it, some zones cannot be read, or only now and then.
  if read -r kind <"$zone/type" && read -r value <"$zone/temp"; then zones="$zones $zone"; fi
done 2>/dev/null
round=0
while [ -e "$alive" ]; do
  echo "sample" || break
  for policy in /sys/devices/system/cpu/cpu[0-9]*; do
    now= cap=
    read -r now <"$policy/cpufreq/scaling_cur_freq"
    read -r cap <"$policy/cpufreq/scaling_max_freq"
    echo "core ${policy##*/cpu} ${now:--} ${cap:--}"
  done 2>/dev/null
  for zone in $zones; do
    read -r kind <"$zone/type" && read -r value <"$zone/temp" && echo "zone $kind $value"
  done 2>/dev/null
  battery=/sys/class/power_supply/battery
  current= voltage= charge= status=
  {
    read -r current <$battery/current_now
    read -r voltage <$battery/voltage_now
    read -r charge <$battery/charge_counter
    read -r status <$battery/status
  } 2>/dev/null
  echo "power ${current:--} ${voltage:--} ${charge:--} ${status:--}"
  if [ $((round % every)) = 0 ]; then
    echo "battery"
    dumpsys battery 2>/dev/null
    echo "thermalservice"
    dumpsys thermalservice 2>/dev/null
  fi
  echo "end" || break
  round=$((round + 1))
  [ "$round" = "$rounds" ] && break
  # A pause that the end of stdin cuts short: the host has heard enough, or is gone. (mksh: more than 128 is a timeout.)
  read -r -t "$interval" word
  [ $? -gt 128 ] || break
done
