# The disk has the promised free space. Promise: disk_gb. Needs no environment.
echo "checked: the directory of the tests has enough free disk space"

read -r _ _ _ free _ < <(df -P -k . | tail -n 1)
if ! [[ $free =~ ^[0-9]+$ ]]; then
    echo "df does not report the free space" >&2
    exit 2
fi
bytes=$((free * 1024))
echo "found: $((bytes / 1000000000)).$((bytes / 100000000 % 10)) GB"

if [ -z "${PROMISE_DISK_GB:-}" ]; then
    echo "message: nothing promises \`disk_gb\`"
    exit 77
fi
echo "expected: at least $PROMISE_DISK_GB GB"
awk -v bytes="$bytes" -v promised="$PROMISE_DISK_GB" 'BEGIN { exit !(bytes >= promised * 1e9) }'
