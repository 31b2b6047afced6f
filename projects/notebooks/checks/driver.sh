# The machine has the promised GPUs and the promised NVIDIA driver. Promises: gpus, driver. Needs no environment.
echo "checked: nvidia-smi finds the promised GPUs and their driver"

newest() {
    printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1
}

# Succeed if a version is in a range such as `>=550,<580`. `550` without an operator stands for all 550.*.
satisfies() {
    local version=$1 part operator wanted
    local -a parts
    IFS=, read -ra parts <<< "${2// /}"
    for part in "${parts[@]}"; do
        operator=${part%%[0-9]*}
        wanted=${part#"$operator"}
        case $operator in
            '>=') [ "$(newest "$version" "$wanted")" = "$version" ] ;;
            '<') [ "$(newest "$version" "$wanted")" != "$version" ] ;;
            '>') [ "$(newest "$version" "$wanted")" != "$wanted" ] ;;
            '<=') [ "$(newest "$version" "$wanted")" = "$wanted" ] ;;
            '' | '==') [[ $version == "$wanted" || $version == "$wanted".* ]] ;;
            '!=') [[ $version != "$wanted" && $version != "$wanted".* ]] ;;
            *)
                echo "the operator of $part is not one of >= > <= < == !=" >&2
                exit 2
                ;;
        esac || return 1
    done
}

counted() {
    [ "$1" = 1 ] && echo "1 GPU" || echo "$1 GPUs"
}

gpus=${PROMISE_GPUS:-0}
if [ "$gpus" = 0 ]; then
    echo "message: the machine promises no GPU"
    exit 77
fi
echo "expected: $(counted "$gpus")${PROMISE_DRIVER:+, driver $PROMISE_DRIVER}"

if ! command -v nvidia-smi > /dev/null; then
    echo "found: no program nvidia-smi"
    exit 1
fi
if ! output=$(timeout 30 nvidia-smi --query-gpu=driver_version,name --format=csv,noheader 2>&1); then
    echo "found: nvidia-smi failed: $(tail -n 1 <<< "$output")"
    exit 1
fi
count=$(grep -c . <<< "$output")
driver=$(head -n 1 <<< "$output" | cut -d , -f 1)
echo "found: $(counted "$count") ($(cut -d , -f 2- <<< "$output" | sed 's/^ *//' | sort -u | paste -sd , -)), driver $driver"
[ "$count" -ge "$gpus" ] && satisfies "$driver" "${PROMISE_DRIVER:-}"
