umask 022
engine=none
if [ -S /var/run/docker.sock ]; then
	engine=there
	if command -v docker >/dev/null 2>&1; then
		docker info </dev/null >/dev/null 2>&1 || engine=silent
	fi
fi
say engine $engine
mkdir -p $bin $run || exit 1
[ -d $home ] || mkdir -m 700 $home || exit 1
free() { df -Pk "$1" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4; }
say free_bin "$(free $bin)"
say free_home "$(free $home)"
sum() { if [ -f "$1" ] && command -v sha256sum >/dev/null 2>&1; then sha256sum "$1" | cut -d ' ' -f 1; fi; }
say version "$([ -x $bin/dstack-shim ] && $bin/dstack-shim --build </dev/null 2>/dev/null | head -n 1)"
say dstack-shim "$(sum $bin/dstack-shim)"
say dstack-runner "$(sum $bin/dstack-runner)"
