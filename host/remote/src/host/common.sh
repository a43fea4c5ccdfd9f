PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
home=/root/.dstack
run=/run/dstack-shim
bin=/usr/local/bin
unit=/etc/systemd/system/dstack-shim.service
# Who the shim is for: the instance, then account and key of its logins.
holder=$home/host_holder
say() { echo "dstack:$1=$2"; }
fail() { echo "$1" >&2; exit 1; }
# One at a time takes the host or leaves it; the lock goes with the script, and leaves no file.
lock() { exec 9</root && if command -v flock >/dev/null 2>&1; then flock 9; fi; }
has_systemd() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null 2>&1; }
keeper_pid() {
	pid=$(cat $run/keeper.pid 2>/dev/null) || return 1
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q dstack-shim-keeper && echo "$pid"
}
stop_keeper() {
	if pid=$(keeper_pid); then
		kill -TERM "-$pid" 2>/dev/null
		i=0
		while kill -0 "-$pid" 2>/dev/null && [ $i -lt 8 ]; do
			i=$((i + 1))
			sleep 1
		done
		kill -KILL "-$pid" 2>/dev/null
	fi
	rm -f $run/keeper.pid
}
start_keeper() {
	: >$run/ends
	# Without an init system of its own, the host restarts the shim by this loop; the server starts it after a boot.
	setsid sh -c '
echo $$ >/run/dstack-shim/keeper.pid
cd /root/.dstack
while :; do
	(set -a; . /root/.dstack/shim.env; set +a; exec /usr/local/bin/dstack-shim) </dev/null >/run/dstack-shim/out.log 2>&1
	echo $? >>/run/dstack-shim/ends
	sleep 3
done' dstack-shim-keeper </dev/null >/dev/null 2>&1 &
}
