for name in dstack-shim dstack-runner; do
	new=$bin/.$name.new
	[ -f $new ] || continue
	chmod 755 $new
	# SELinux lets systemd run nothing that was written by a login session.
	chcon system_u:object_r:bin_t:s0 $new 2>/dev/null
	if ! told=$($new --version </dev/null 2>&1); then
		rm -f $new
		told=$(printf '%s' "$told" | tail -n 1 | cut -c -150)
		fail "$name does not run here (${told:-it says nothing}): is $bin mounted with noexec, or is the file for another processor?"
	fi
	mv -f $new $bin/$name || exit 1
done
rm -f $home/host_info.json
if has_systemd; then
	cat >$unit <<'END' || fail "cannot write $unit"
[Unit]
Description=dstack shim: runs jobs for a dstack server
After=network-online.target docker.service
Wants=network-online.target
StartLimitIntervalSec=3600
StartLimitBurst=1080

[Service]
Type=simple
User=root
Restart=always
RestartSec=3
KillMode=process
RuntimeDirectory=dstack-shim
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
WorkingDirectory=/root/.dstack
EnvironmentFile=/root/.dstack/shim.env
ExecStart=/usr/local/bin/dstack-shim

[Install]
WantedBy=multi-user.target
END
	systemctl daemon-reload && systemctl --quiet enable dstack-shim && systemctl restart dstack-shim || exit 1
else
	command -v setsid >/dev/null 2>&1 || fail "neither systemd nor setsid (package util-linux) is there to keep the shim running"
	stop_keeper
	start_keeper
fi
