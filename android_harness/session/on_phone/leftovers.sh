# Prints what a session that could not clean up left on the phone: its lock, how to undo its settings, texts. Set before it: folder.

is_held $(cat "$lock" 2>/dev/null) && exit 0
for name in lock undo run; do
  [ -e "$folder/$name" ] && echo "$name"
done
exit 0
