# shellcheck shell=sh
# Helpers for the guest scripts of this folder: logging in with CHAP, and what the kernel has to say afterwards.

# login PORTAL: to $IQN, with CHAP when $CHAP_USER is set.
login() {
    [ -n "$_started" ] || { start_iscsid || return; _started=1; }
    _p=$1
    # The record is made for the address that was given: the server may announce one that is not reachable from here.
    iscsiadm -m node -T "$IQN" -p "$_p" -o new >/dev/null || return
    if [ -n "$CHAP_USER" ]; then
        for _kv in "authmethod CHAP" "username $CHAP_USER" "password $CHAP_SECRET"; do
            iscsiadm -m node -T "$IQN" -p "$_p" -o update -n "node.session.auth.${_kv%% *}" -v "${_kv#* }" || return
        done
        if iscsiadm -m node -T "$IQN" -p "$_p" -o update -n node.session.auth.password -v wrong-secret-12 &&
            iscsiadm -m node -T "$IQN" -p "$_p" --login >/dev/null 2>&1; then
            echo "a wrong secret was accepted"
            return 1
        fi
        iscsiadm -m node -T "$IQN" -p "$_p" -o update -n node.session.auth.password -v "$CHAP_SECRET" || return
    fi
    iscsiadm -m node -T "$IQN" -p "$_p" --login
}

iscsi_logout() { iscsiadm -m node -T "$IQN" --logout; }

# no_io_errors: the kernel's log has no failed request.
no_io_errors() { ! dmesg | grep -iE 'I/O error|Buffer I/O|critical (target|medium)|XFS.*(error|shutdown)|EXT4-fs error|DID_'; }
