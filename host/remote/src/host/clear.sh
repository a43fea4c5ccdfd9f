lock
now=$(head -n 1 $holder 2>/dev/null)
if [ -n "$now" ] && [ "$now" != "$instance" ]; then
	# The same machine by another address.
	say holder "$now"
	[ "$(tail -n 1 $holder)" = "$login" ] && say key kept
	exit 0
fi
if has_systemd && [ -f $unit ]; then
	systemctl --quiet disable --now dstack-shim || exit 1
	rm -f $unit
	systemctl daemon-reload
	systemctl reset-failed dstack-shim 2>/dev/null
fi
stop_keeper
for task in $home/runners/*; do
	[ -d "$task" ] || continue
	# Only containers whose folder is here: the engine may have others.
	if command -v docker >/dev/null 2>&1; then docker rm -f -v "${task##*/}" </dev/null >/dev/null 2>&1; fi
done
rm -f $bin/dstack-shim $bin/dstack-runner $bin/.dstack-shim.new $bin/.dstack-runner.new
# The rest of the folder may belong to a client or a server on this host.
rm -rf $home/runners/ $home/.trash-* $run
rm -f $home/shim.log $home/shim.env $home/host_info.json $holder
[ ! -d $home ] || rmdir $home 2>/dev/null
exit 0
