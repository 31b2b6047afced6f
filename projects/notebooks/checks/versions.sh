# Programs have the promised versions. Promise: versions, for example {python3: ">=3.10", git: ">=2.30,<3"}.
echo "checked: programs have the promised versions"

newest() {
    printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1
}

# Succeed if a version is in a range such as `>=3.10,<4`. `3.10` without an operator stands for all 3.10.*.
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

# Print the first number with a dot in the output of `PROGRAM --version` or similar.
version_of() {
    local option text
    for option in --version -version version; do
        text=$(timeout 10 "$1" "$option" 2>&1 < /dev/null) || continue
        if [[ $text =~ [0-9]+(\.[0-9]+)+ ]]; then
            echo "${BASH_REMATCH[0]}"
            return
        fi
    done
}

if [ -z "${PROMISE_VERSIONS:-}" ]; then
    echo "message: nothing promises \`versions\` of programs"
    exit 77
fi
echo "expected: ${PROMISE_VERSIONS//$'\n'/, }"

status=0
while read -r program range; do
    if ! command -v "$program" > /dev/null; then
        echo "found: no program $program"
        status=1
        continue
    fi
    version=$(version_of "$program")
    echo "found: $program ${version:-of an unknown version}"
    if [ -n "$range" ] && { [ -z "$version" ] || ! satisfies "$version" "$range"; }; then
        status=1
    fi
done <<< "$PROMISE_VERSIONS"
exit "$status"
