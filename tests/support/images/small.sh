#!/bin/sh
# Makes the small container image of the tests from the files of this machine, without a registry.
#
#   small.sh [IMAGE]        IMAGE defaults to dstack-test/small:1; an image that exists is left alone
#
# It has BusyBox, ssh, sshd and ssh-keygen, and the users root, app (1000, extra group 1001, locked password) and nobody
# (home /nonexistent). Needs Docker, and the packages busybox-static and openssh-server. Without root it cannot read
# what sshd needs.
set -eu

IMAGE=${1:-dstack-test/small:1}
BUSYBOX=${BUSYBOX:-/bin/busybox}
SSHD_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

if docker image inspect "$IMAGE" >/dev/null 2>&1; then
    exit 0
fi
for file in "$BUSYBOX" /usr/sbin/sshd /usr/bin/ssh /usr/bin/ssh-keygen; do
    [ -x "$file" ] || { echo "$file is missing: install busybox-static and openssh-server" >&2; exit 1; }
done

ROOT=$(mktemp -d)
trap 'rm -rf "$ROOT"' EXIT

for dir in bin usr/bin usr/sbin usr/local/bin etc/pam.d root tmp run var/empty dev proc sys lib64 home/app; do
    mkdir -p "$ROOT/$dir"
done
chmod 755 "$ROOT"
chmod 1777 "$ROOT/tmp"
chmod 700 "$ROOT/root"

cp "$BUSYBOX" "$ROOT/bin/busybox"
for applet in $("$BUSYBOX" --list); do
    [ -e "$ROOT/bin/$applet" ] || ln -s busybox "$ROOT/bin/$applet"
done

copy_libraries() {
    ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$ROOT$(dirname "$library")"
        [ -e "$ROOT$library" ] || cp -L "$library" "$ROOT$library"
    done
}
for program in /usr/sbin/sshd /usr/bin/ssh /usr/bin/ssh-keygen; do
    cp "$program" "$ROOT$program"
    copy_libraries "$program"
done

# The runner's sshd uses PAM, so that accounts with a locked password may log in with a key.
PERMIT=$(find /lib/ /usr/lib/ -name pam_permit.so | head -n 1)
[ -n "$PERMIT" ] || { echo "pam_permit.so is missing: install libpam-modules" >&2; exit 1; }
mkdir -p "$ROOT$(dirname "$PERMIT")"
cp "$PERMIT" "$ROOT$PERMIT"
copy_libraries "$PERMIT"
for kind in auth account session password; do
    echo "$kind required pam_permit.so"
done | tee "$ROOT/etc/pam.d/sshd" >"$ROOT/etc/pam.d/other"

cat >"$ROOT/etc/passwd" <<'PASSWD'
root:x:0:0:root:/root:/bin/sh
sshd:x:100:65534::/run/sshd:/bin/false
app:x:1000:1000::/home/app:/bin/sh
nobody:x:65534:65534::/nonexistent:/bin/false
PASSWD
cat >"$ROOT/etc/group" <<'GROUP'
root:x:0:
app:x:1000:
extra:x:1001:app
nogroup:x:65534:
GROUP
printf 'root:*:19000:0:99999:7:::\napp:!:19000:0:99999:7:::\n' >"$ROOT/etc/shadow"
chmod 640 "$ROOT/etc/shadow"
chown -R 1000:1000 "$ROOT/home/app"
printf 'ID=dstack-test\nNAME=dstack-test\n' >"$ROOT/etc/os-release"
echo "export PATH=$SSHD_PATH" >"$ROOT/etc/profile"

tar -C "$ROOT" -c . | docker import --change 'CMD ["/bin/sh"]' --change "ENV PATH=$SSHD_PATH" - "$IMAGE"
