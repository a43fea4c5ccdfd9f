# A cluster of two nodes and a login node, in namespaces of its own. Ends with its first process.
# $1 folder of the bed, $2 Debian with Slurm, $3 start of all addresses, $4 start of names of network namespaces
set -e
D=$1 BASE=$2 NET=$3 TAG=$4
hostname bed
mount --make-rprivate /
mkdir -p "$D/upper" "$D/work" "$D/root"
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$D/upper,workdir=$D/work" "$D/root"
R=$D/root
mount -t proc proc "$R/proc"
mount --rbind /dev "$R/dev"
mkdir -p "$R/base" "$R/run/munge" "$R/run/sshd" "$R/var/spool/slurm/ctld" "$R/var/spool/slurm/n1" "$R/var/spool/slurm/n2" "$R/var/log/munge"
mount --bind "$BASE" "$R/base"

cat > "$R/etc/hosts" <<X
127.0.0.1 localhost
$NET.10 bed
$NET.11 n1
$NET.12 n2
X
cat > "$R/etc/slurm/slurm.conf" <<X
ClusterName=test
SlurmctldHost=bed($NET.10)
AuthType=auth/munge
CredType=cred/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurm/ctld
SlurmdSpoolDir=/var/spool/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MpiDefault=none
GresTypes=gpu
KillWait=5
NodeName=n1 NodeHostname=bed NodeAddr=$NET.11 CPUs=2 RealMemory=1000 Gres=gpu:1 State=UNKNOWN
NodeName=n2 NodeHostname=bed NodeAddr=$NET.12 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=cpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=n1 MaxTime=INFINITE State=UP
X
echo 'NodeName=n1 Name=gpu Count=1 File=/dev/null' > "$R/etc/slurm/gres.conf"
echo 'CgroupPlugin=disabled' > "$R/etc/slurm/cgroup.conf"

# What Pyxis does with a container, with the system itself as the only image.
cat > "$R/usr/local/bin/srun" <<'X'
#!/bin/sh
printf '%s\n' "$*" >> /var/log/srun.log
kept=
while [ $# -gt 0 ]; do
  case $1 in
    --container-*|--no-container-*) ;;
    --*) kept="$kept $1" ;;
    *) break ;;
  esac
  shift
done
exec /usr/bin/srun $kept sudo -n /usr/local/sbin/container "$@"
X
cat > "$R/usr/local/sbin/container" <<'X'
#!/bin/sh
# Mounts, processes and the file system are its own; the network is the node's.
exec unshare -m -p --fork --kill-child sh -c '
mount --make-rprivate / && mount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work /mnt/root &&
mount -t overlay overlay -o lowerdir=/base,upperdir=/mnt/up,workdir=/mnt/work /mnt/root &&
mount -t proc proc /mnt/root/proc && mount --rbind /dev /mnt/root/dev &&
cp /etc/hosts /mnt/root/etc/hosts && mkdir -p /mnt/root/run/sshd && exec chroot /mnt/root "$@"' container "$@"
X
chmod 755 "$R/usr/local/bin/srun" "$R/usr/local/sbin/container"
touch "$R/var/log/srun.log"
chmod 666 "$R/var/log/srun.log"
echo 'researcher ALL=(root) NOPASSWD: /usr/local/sbin/container' > "$R/etc/sudoers.d/bed"
chmod 440 "$R/etc/sudoers.d/bed"

chroot "$R" sh -ec '
dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 2>/dev/null
chown munge: /etc/munge/munge.key /run/munge /var/log/munge; chmod 400 /etc/munge/munge.key; chmod 755 /run/munge
useradd -m -s /bin/bash researcher; usermod -p "*" researcher
mkdir -p /home/researcher/.ssh; chmod 700 /home/researcher/.ssh
ssh-keygen -A > /dev/null'
# A login that talks, as those of clusters do.
printf 'echo Welcome to the cluster\necho Mind the quota >&2\n' > "$R/home/researcher/.bash_profile"
# No line break at the end: it must stay whole.
printf %s "$(cat "$D/key.pub")" > "$R/home/researcher/.ssh/authorized_keys"
chroot "$R" chown -R researcher: /home/researcher
chroot "$R" su -s /bin/sh munge -c /usr/sbin/munged

at() {
  place=$1
  shift
  nsenter --net="/run/netns/$TAG$place" chroot "$R" "$@" &
}
at l /usr/sbin/sshd -D -e -o UsePAM=no -o PasswordAuthentication=no
at l slurmctld -D
at a slurmd -D -N n1
at b slurmd -D -N n2
wait
