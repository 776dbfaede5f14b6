# What the scripts of this folder share: to be sourced. The ensemble is named by its ports and its
# containers, in the order of the servers.
# shellcheck shell=bash

readonly SERVERS=(1 2 3)
readonly QUORUM_SECONDS_MAX=60

# Asks one of ZooKeeper's four-letter words; prints nothing if nobody answers.
four_letters() {
    # shellcheck disable=SC2016 # The inner bash expands them.
    timeout 2 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf %s "$1" >&3 && cat <&3' \
        "$1" "$2" 2>/dev/null || true
}

# `role SERVER`: leader, follower, or nothing while it does not serve.
role() {
    # shellcheck disable=SC2154 # Those of who sources this.
    four_letters "${ports[$1 - 1]}" srvr | sed -n 's/^Mode: //p'
}

# Prints the roles of all servers in a line, with a dash for those that do not serve.
roles() {
    local server role line=()
    for server in "${SERVERS[@]}"; do
        role=$(role "$server")
        line+=("${role:--}")
    done
    echo "${line[*]}"
}

# `with_role ROLE`: prints the servers that have it.
with_role() {
    local server
    for server in "${SERVERS[@]}"; do
        if [[ $(role "$server") == "$1" ]]; then echo "$server"; fi
    done
}

# Waits until one server leads and all others follow, or fails.
await_quorum() {
    local began=$SECONDS now
    until now=$(roles) && is_whole "$now"; do
        if ((SECONDS - began >= QUORUM_SECONDS_MAX)); then
            say "no quorum within $QUORUM_SECONDS_MAX s, roles: $now"
            return 1
        fi
        sleep 0.2
    done
}

is_whole() {
    [[ $(tr ' ' '\n' <<<"$1" | sort | tr '\n' ' ') == "follower follower leader " ]]
}

fail() {
    say "$*"
    exit 1
}

say() {
    echo "ensemble: $*" >&2
}
