umask 077
mkdir -p "$HOME/.ssh" || fail "cannot make $HOME/.ssh"
chmod 700 "$HOME/.ssh"
file=$HOME/.ssh/authorized_keys
touch "$file" || fail "cannot write $file"
if ! grep -v '^[[:space:]]*#' "$file" | grep -qF "$blob"; then
	if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then echo >>"$file"; fi
	printf '%s # added by dstack\n' "$key" >>"$file" || fail "cannot write $file"
fi
chmod 600 "$file"
