say os "$(uname -s)"
say arch "$(uname -m)"
say uid "$(id -u)"
if [ "$(id -u)" = 0 ]; then
	say sudo root
elif ! command -v sudo >/dev/null 2>&1; then
	say sudo none
elif sudo -n true </dev/null >/dev/null 2>&1; then
	say sudo yes
else
	say sudo password
fi
