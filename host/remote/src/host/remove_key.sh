file=$HOME/.ssh/authorized_keys
[ -f "$file" ] || exit 0
umask 077
grep -v "$blob.*# added by dstack\$" "$file" >"$file.dstack"
if [ $? -gt 1 ] || ! cat "$file.dstack" >/dev/null; then
	rm -f "$file.dstack"
	fail "cannot rewrite $file"
fi
mv -f "$file.dstack" "$file"
