#!/bin/sh
# Makes what deploy/secrets lacks: random passwords, the servers' secret, a first API key. What is
# there is kept, so that it may be run again. It needs nothing but a shell and coreutils.
#
# The folder is for its owner alone. Files that containers read are open to everyone inside it, as
# the users in the containers are others than the one who runs this.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets/keys
chmod 700 secrets
chmod 755 secrets/keys
cd secrets

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

# $1: the file, $2: its mode, stdin: what is written where there is no such file
make() {
    if [ -s "$1" ]; then
        cat >/dev/null
    else
        cat >"$1.part" && chmod "$2" "$1.part" && mv "$1.part" "$1"
        echo "made deploy/secrets/$1"
    fi
}

random | make server_secret.txt 644
random | make grafana_password.txt 644
printf 'requirepass %s\n' "$(random)" | make redis_auth.txt 644
password=$(sed -n 's/^requirepass //p' redis_auth.txt)
printf 'redis://:%s@redis:6379/0\n' "$password" | make redis_url.txt 644
printf 'redis://:%s@redis-cache:6379/0\n' "$password" | make cache_redis_url.txt 644
hash() { tr -d '\n' <"$1" | sha256sum | cut -d ' ' -f 1; }

# Keys of the API, whose hashes are all that the servers have of them: one for who made this, and
# one with which Prometheus reads /metrics and may ask no model.
printf 'rg-%s\n' "$(random)" | make api_key.txt 600
printf 'rg-%s\n' "$(random)" | make metrics_key.txt 644
make keys/keys.yaml 644 <<END
keys:
  - hash: sha256:$(hash api_key.txt)
    tenant: operator
    role: admin
  - hash: sha256:$(hash metrics_key.txt)
    tenant: prometheus
    role: monitor
    models: [none]
END
