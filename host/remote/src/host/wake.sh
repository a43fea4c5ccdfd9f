[ -x $bin/dstack-shim ] || fail "the shim is not installed any more"
if has_systemd; then
	systemctl reset-failed dstack-shim 2>/dev/null
	systemctl start dstack-shim
elif ! keeper_pid >/dev/null; then
	mkdir -p $run
	start_keeper
fi
