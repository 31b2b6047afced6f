# The promised hosts have an address, and accept connections where a port is given. Promise: network. Needs no environment.
echo "checked: the hosts that the tests need can be reached"

if [ -z "${PROMISE_NETWORK:-}" ]; then
    echo "message: nothing promises a host in \`network\`"
    exit 77
fi
echo "expected: ${PROMISE_NETWORK//$'\n'/, }"

resolves() {
    if command -v getent > /dev/null; then
        timeout 10 getent ahosts "$1" > /dev/null
    else
        timeout 10 python3 -c 'import socket, sys; socket.getaddrinfo(sys.argv[1], None)' "$1" 2> /dev/null
    fi
}

connects() {
    # shellcheck disable=SC2016 # the inner bash expands its arguments
    timeout 10 bash -c 'exec 3<> "/dev/tcp/$0/$1"' "$1" "$2" 2> /dev/null
}

status=0
while read -r entry; do
    host=$entry port=
    if [[ $entry =~ ^(\[.*\]|[^:]*):([0-9]+)$ ]]; then
        host=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
    fi
    host=${host#[}
    host=${host%]}
    if ! resolves "$host"; then
        echo "found: $host has no address"
        status=1
    elif [ -n "$port" ] && ! connects "$host" "$port"; then
        echo "found: $host does not accept connections on port $port within 10 s"
        status=1
    else
        echo "found: $entry can be reached"
    fi
done <<< "$PROMISE_NETWORK"
exit "$status"
