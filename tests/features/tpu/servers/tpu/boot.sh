#!/bin/sh
# Boots one VM of the test server of the TPU API. It is process 1 of a PID namespace, and becomes the SSH server.
#
# Arguments: directory of the VM, host name, path of sshd, shared directory of the machine (may be empty)
set -eu
directory=$1 hostname=$2 sshd=$3 shared=$4

echo started
read -r answer # by now, the end of the test server ends this process; if it has ended before, `read` fails
[ "$answer" = boot ]

hostname "$hostname"
mount --make-rprivate /
mount --bind "$directory/disk/root" /root
mount --bind "$directory/disk/home" /home
mount --bind "$directory/disk/topgallant" /var/lib/topgallant
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/vm
mount --bind "$directory" /run/vm
if [ -n "$shared" ]; then mkdir /run/shared && mount --bind "$shared" /run/shared; fi
mount -t tmpfs -o mode=1777 tmpfs /tmp
if [ -n "$shared" ]; then mkdir -p "$shared" && mount --bind /run/shared "$shared"; fi
for file in passwd group shadow; do mount --bind "/run/vm/$file" "/etc/$file"; done

cd /
if [ -e /run/vm/startup-script ]; then
  # As google-startup-scripts does: a copy is executed by bash, which follows its `#!` line.
  setsid sh -c 'cp /run/vm/startup-script /tmp/startup-script && chmod 755 /tmp/startup-script
    /bin/bash -c /tmp/startup-script; echo "startup-script exit status $?"' \
    </dev/null >>/run/vm/startup-script.log 2>&1 &
fi
exec "$sshd" -D -f /run/vm/sshd_config -E /run/vm/sshd.log </dev/null >/dev/null 2>&1
