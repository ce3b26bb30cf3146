# Runs on the phone during a measurement and prints clocks, temperatures and battery until the session or the listener is gone.
# Set before it: interval, every, rounds, alive_path (a path that exists as long as the session).
# The shell reads the files itself: starting a process for each would disturb the measurement.

zones=
for zone in /sys/class/thermal/thermal_zone*; do
  # On real phones some zones cannot be read, or only sometimes.
  if read -r kind <"$zone/type" && read -r value <"$zone/temp"; then zones="$zones $zone"; fi
done 2>/dev/null
round=0
while [ -e "$alive_path" ]; do
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
  # Pause; the end of stdin ends the loop: the host is done, or gone. (mksh: a status above 128 is a timeout.)
  read -r -t "$interval" word
  [ $? -gt 128 ] || break
done
