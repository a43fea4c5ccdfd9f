lock
umask 077
[ -d $home ] || mkdir -m 700 $home || exit 1
printf '%s\n%s\n' "$instance" "$login" >$holder.new || fail "cannot write $holder.new"
mv -f $holder.new $holder
