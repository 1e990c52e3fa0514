#compdef kubectl-ipam

autoload -U is-at-least

_kubectl-ipam() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_kubectl-ipam_commands" \
"*::: :->kubectl-ipam" \
&& ret=0
    case $state in
    (kubectl-ipam)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:kubectl-ipam-command-$line[1]:"
        case $line[1] in
            (pools)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these pools\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(pool)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these pools\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these pools\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(get)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these pools\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(networks)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these networks:_default' \
&& ret=0
;;
(network)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these networks:_default' \
&& ret=0
;;
(who)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':target -- An address such as 10.0.0.7, a prefix such as fd00\:\:/64, or the name of a claim, machine or Cluster:_default' \
&& ret=0
;;
(history)
_arguments "${_arguments_options[@]}" : \
'--from=[File with the lines of the log; \`-\` is the standard input]:FILE:_files' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':address -- An address such as 10.0.0.7, or a prefix such as fd00\:\:/64:_default' \
&& ret=0
;;
(claims)
_arguments "${_arguments_options[@]}" : \
'--pool=[Only claims of this pool\: NAME, NAMESPACE/NAME or KIND/NAME]:POOL:_default' \
'--cluster-name=[Only claims of this Cluster of Cluster API]:NAME:_default' \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--waiting[Only claims without an address]' \
'-w[Print what changes until interrupted]' \
'--watch[Print what changes until interrupted]' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these claims\: NAME or NAMESPACE/NAME:_default' \
&& ret=0
;;
(claim)
_arguments "${_arguments_options[@]}" : \
'--pool=[Only claims of this pool\: NAME, NAMESPACE/NAME or KIND/NAME]:POOL:_default' \
'--cluster-name=[Only claims of this Cluster of Cluster API]:NAME:_default' \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--waiting[Only claims without an address]' \
'-w[Print what changes until interrupted]' \
'--watch[Print what changes until interrupted]' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these claims\: NAME or NAMESPACE/NAME:_default' \
&& ret=0
;;
(clusters)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only Clusters with these names:_default' \
&& ret=0
;;
(cluster)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only Clusters with these names:_default' \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
'--machine-deployment=[Only this MachineDeployment]:NAME:_default' \
'--replicas=[Its number of replicas, instead of that in the cluster and the maximum of the autoscaler]:NUMBER:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--wait-duration=[How long to wait, for example 30s or 5m]:DURATION:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--errors[Only errors]' \
'--wait[Wait until the provider works\: no part has an error but for pools and claims]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::pool -- Only this pool, its network and its claims\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(web)
_arguments "${_arguments_options[@]}" : \
'--port=[Port on 127.0.0.1; 0 selects a free one]:PORT:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-open[Do not open the browser]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(reserve)
_arguments "${_arguments_options[@]}" : \
'--for=[The claim that gets the address\: NAMESPACE/NAME, or NAME in the namespace of the pool. Without it, no claim gets the address]:CLAIM:_default' \
'--dry-run=[\`server\` lets the API server check the reservation, without creating it. \`client\` only prints it]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
'::address -- An address or a prefix; by default the next one that the pool allocates:_default' \
&& ret=0
;;
(unreserve)
_arguments "${_arguments_options[@]}" : \
'--dry-run=[\`server\` lets the API server check the change, without making it. \`client\` only prints it]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'-y[Do not ask before the deletion of a reservation whose address is in use or cools down]' \
'--yes[Do not ask before the deletion of a reservation whose address is in use or cools down]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
':address -- An address or a prefix:_default' \
&& ret=0
;;
(quarantine)
_arguments "${_arguments_options[@]}" : \
'--pool=[The pool, if several contain the address\: NAME, NAMESPACE/NAME or KIND/NAME]:POOL:_default' \
'--for=[How long no claim gets the address, from 1s to 720h]:DURATION:_default' \
'--reason=[What was observed]:TEXT:_default' \
'--dry-run=[\`server\` lets the API server check the change, without making it. \`client\` only prints it]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':address -- An address or a prefix:_default' \
&& ret=0
;;
(registry)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
":: :_kubectl-ipam__subcmd__registry_commands" \
"*::: :->registry" \
&& ret=0

    case $state in
    (registry)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:kubectl-ipam-registry-command-$line[1]:"
        case $line[1] in
            (list)
_arguments "${_arguments_options[@]}" : \
'()-l+[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'()--selector=[Label selector of the listed objects, for example environment=production]:LABELS:_default' \
'--hub-kubeconfig=[Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token]:FILE:_files' \
'*--nats-server=[URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated]:URL:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--no-headers[Do not print the header of a table]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::names -- Only these registries:_default' \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
'--registry=[Name of the IPRegistry; by default that of the network, or the only one]:NAME:_default' \
'--size=[Number of addresses or prefixes of a block; by default that of the network, or that of the other management clusters]:NUMBER:_default' \
'--hub-kubeconfig=[Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token]:FILE:_files' \
'*--nats-server=[URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated]:URL:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':network -- The network:_default' \
&& ret=0
;;
(return)
_arguments "${_arguments_options[@]}" : \
'--network=[The network; by default the only one in which this management cluster has the block]:NAME:_default' \
'--dry-run=[\`server\` lets the API server check the change, \`client\` does not send it]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':block -- The block, such as 10.0.0.64/26:_default' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'--cluster-id=[Identity of the management cluster in the registry]:ID:_default' \
'--registry=[Name of the IPRegistry; by default the only one]:NAME:_default' \
'--dry-run=[\`client\` prints what would be changed. A registry has no \`server\`]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--hub-kubeconfig=[Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token]:FILE:_files' \
'*--nats-server=[URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated]:URL:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'-y[Do not ask]' \
'--yes[Do not ask]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
'--registry=[Name of the IPRegistry; by default the only one]:NAME:_default' \
'--dry-run=[\`client\` prints what would be changed. A registry has no \`server\`]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--hub-kubeconfig=[Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token]:FILE:_files' \
'*--nats-server=[URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated]:URL:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'-y[Do not ask]' \
'--yes[Do not ask]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(create-network)
_arguments "${_arguments_options[@]}" : \
'--size=[Number of addresses or prefixes of a block\: a power of two]:NUMBER:_default' \
'--quarantine-seconds=[Seconds after the return of a block during which no other management cluster takes it; by default a week]:SECONDS:_default' \
'--registry=[Name of the IPRegistry; by default the only one]:NAME:_default' \
'--dry-run=[\`client\` prints what would be changed. A registry has no \`server\`]:MODE:((none\:"Objects are changed"
client\:"Nothing is sent to the API server"
server\:"The API server checks the change, but does not make it"))' \
'--hub-kubeconfig=[Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token]:FILE:_files' \
'*--nats-server=[URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated]:URL:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':network -- The network:_default' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_kubectl-ipam__subcmd__registry__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:kubectl-ipam-registry-help-command-$line[1]:"
        case $line[1] in
            (list)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(return)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(create-network)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
;;
(export)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::pools -- Only these pools and the reservations in them\: NAME, NAMESPACE/NAME or KIND/NAME:_default' \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
'--claim-name=[Name of the claim of a Machine that has none yet. {machine}, {infrastructure} and {pool} stand for the names of the Machine, of its infrastructure machine, and of the pool]:NAME:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(convert)
_arguments "${_arguments_options[@]}" : \
'()--from=[The provider whose pools and addresses in the cluster are converted]:PROVIDER:((metal3\:"The IP address manager of Metal3"))' \
'--source=[Value of the label ipam.cluster.x-k8s.io/source of the objects; by default the name of the file without its extension, or that of the provider]:NAME:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::file -- A table in CSV or TSV; `-` is the standard input:_files' \
&& ret=0
;;
(options)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(version)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
name\:"One resource name per line, without the namespace, as kubectl prints it"))' \
'--as=[User to impersonate\: the name of a user, or system\:serviceaccount\:NAMESPACE\:NAME]:USER:_default' \
'*--as-group=[Group to impersonate; can be repeated]:GROUP:_default' \
'--as-uid=[UID to impersonate]:UID:_default' \
'--cluster=[Cluster of the kubeconfig, instead of that of the context]:NAME:_default' \
'--user=[User of the kubeconfig, instead of that of the context]:NAME:_default' \
'-s+[Address and port of the API server]:URL:_default' \
'--server=[Address and port of the API server]:URL:_default' \
'--token=[Bearer token, instead of the credentials of the user]:TOKEN:_default' \
'--request-timeout=[How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit]:DURATION:_default' \
'--certificate-authority=[File with the certificate of the authority of the API server]:FILE:_files' \
'--tls-server-name=[Name in the certificate of the API server; by default the name in its address]:NAME:_default' \
'-v+[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'--v=[Level of the log on the standard error\: from 6 on each request, from 8 on with details]:LEVEL:_default' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'(--certificate-authority)--insecure-skip-tls-verify[Do not verify the certificate of the API server\: connections are not secure]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_kubectl-ipam__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:kubectl-ipam-help-command-$line[1]:"
        case $line[1] in
            (pools)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(networks)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(who)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(history)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(claims)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(clusters)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(web)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(reserve)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(unreserve)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(quarantine)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(registry)
_arguments "${_arguments_options[@]}" : \
":: :_kubectl-ipam__subcmd__help__subcmd__registry_commands" \
"*::: :->registry" \
&& ret=0

    case $state in
    (registry)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:kubectl-ipam-help-registry-command-$line[1]:"
        case $line[1] in
            (list)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(return)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(create-network)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
(export)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(convert)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(options)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(version)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_kubectl-ipam_commands] )) ||
_kubectl-ipam_commands() {
    local commands; commands=(
'pools:List the pools of all kinds, with their occupancy' \
'pool:List the pools of all kinds, with their occupancy' \
'list:List the pools of all kinds, with their occupancy' \
'get:List the pools of all kinds, with their occupancy' \
'networks:List the networks, with their pools that join or leave' \
'network:List the networks, with their pools that join or leave' \
'who:Show who holds an address or a prefix, or which addresses a claim, machine or Cluster has' \
'history:Show who had an address, and when, according to an allocation log of the manager. No cluster is read' \
'claims:List claims' \
'claim:List claims' \
'clusters:List the Clusters of Cluster API with their addresses\: those that a ClusterAddressing has allocated, those of the machines, and slices' \
'cluster:List the Clusters of Cluster API with their addresses\: those that a ClusterAddressing has allocated, those of the machines, and slices' \
'plan:Show whether the pools have room for a rollout of each MachineDeployment, MachineSet, control plane and MachinePool, with the maximum of the autoscaler' \
'show:Show a pool\: ranges, counts, the next addresses, a map of its addresses, holders, and waiting claims' \
'doctor:Show the state of each part of the provider, and what is wrong with it, with pools and with claims that wait; with the repair' \
'web:Serve a web page on this machine\: pools, a map of their addresses, search, and waiting claims' \
'reserve:Reserve an address that is not in use\: exclude it from a pool, or keep it for a claim' \
'unreserve:Delete the reservation of an address' \
'quarantine:Quarantine an address at which another host answers\: no claim gets it before the end. An address in use stays with its claim, and is quarantined when the claim is deleted' \
'registry:Show the registries of blocks that management clusters share; check a network before it shares its blocks; release the blocks of a management cluster that is gone' \
'export:Write pools and the reservations of users in them as manifests' \
'adopt:Write reservations for addresses that Machines report and no IPAddress has, as manifests\: each is for the claim that will request the address' \
'convert:Write the pools, reservations and networks of a table, or what another provider has in the cluster, as manifests' \
'options:List the flags of the connection, which all commands have' \
'version:Print the version of this program' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'kubectl-ipam commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__adopt_commands] )) ||
_kubectl-ipam__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam adopt commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__claims_commands] )) ||
_kubectl-ipam__subcmd__claims_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam claims commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__clusters_commands] )) ||
_kubectl-ipam__subcmd__clusters_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam clusters commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__convert_commands] )) ||
_kubectl-ipam__subcmd__convert_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam convert commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__doctor_commands] )) ||
_kubectl-ipam__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam doctor commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__export_commands] )) ||
_kubectl-ipam__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam export commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help_commands] )) ||
_kubectl-ipam__subcmd__help_commands() {
    local commands; commands=(
'pools:List the pools of all kinds, with their occupancy' \
'networks:List the networks, with their pools that join or leave' \
'who:Show who holds an address or a prefix, or which addresses a claim, machine or Cluster has' \
'history:Show who had an address, and when, according to an allocation log of the manager. No cluster is read' \
'claims:List claims' \
'clusters:List the Clusters of Cluster API with their addresses\: those that a ClusterAddressing has allocated, those of the machines, and slices' \
'plan:Show whether the pools have room for a rollout of each MachineDeployment, MachineSet, control plane and MachinePool, with the maximum of the autoscaler' \
'show:Show a pool\: ranges, counts, the next addresses, a map of its addresses, holders, and waiting claims' \
'doctor:Show the state of each part of the provider, and what is wrong with it, with pools and with claims that wait; with the repair' \
'web:Serve a web page on this machine\: pools, a map of their addresses, search, and waiting claims' \
'reserve:Reserve an address that is not in use\: exclude it from a pool, or keep it for a claim' \
'unreserve:Delete the reservation of an address' \
'quarantine:Quarantine an address at which another host answers\: no claim gets it before the end. An address in use stays with its claim, and is quarantined when the claim is deleted' \
'registry:Show the registries of blocks that management clusters share; check a network before it shares its blocks; release the blocks of a management cluster that is gone' \
'export:Write pools and the reservations of users in them as manifests' \
'adopt:Write reservations for addresses that Machines report and no IPAddress has, as manifests\: each is for the claim that will request the address' \
'convert:Write the pools, reservations and networks of a table, or what another provider has in the cluster, as manifests' \
'options:List the flags of the connection, which all commands have' \
'version:Print the version of this program' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'kubectl-ipam help commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__adopt_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help adopt commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__claims_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__claims_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help claims commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__clusters_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__clusters_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help clusters commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__convert_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__convert_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help convert commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__doctor_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help doctor commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__export_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help export commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__help_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help help commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__history_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__history_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help history commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__networks_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__networks_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help networks commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__options_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__options_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help options commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__plan_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__plan_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help plan commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__pools_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__pools_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help pools commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__quarantine_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__quarantine_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help quarantine commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry_commands() {
    local commands; commands=(
'list:List the registries, the management clusters that use them, and who has how many blocks' \
'check:Show who has the blocks of the addresses in use of a network\: free blocks are taken first, a block of another management cluster is a conflict' \
'return:Return a block of this management cluster without an address in use, before spec.blocks.keepSeconds of its network is over' \
'release:Delete the records of a management cluster that no longer exists\: others can take its blocks' \
'adopt:Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has\: it was built again' \
'create-network:Write the size and the quarantine of the blocks of a network into the registry, before a management cluster does' \
    )
    _describe -t commands 'kubectl-ipam help registry commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__adopt_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help registry adopt commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__check_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help registry check commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__create-network_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__create-network_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help registry create-network commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__list_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help registry list commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__release_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help registry release commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__return_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__registry__subcmd__return_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help registry return commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__reserve_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__reserve_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help reserve commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__show_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help show commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__unreserve_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__unreserve_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help unreserve commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__version_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__version_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help version commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__web_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__web_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help web commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__who_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__who_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help who commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__history_commands] )) ||
_kubectl-ipam__subcmd__history_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam history commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__networks_commands] )) ||
_kubectl-ipam__subcmd__networks_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam networks commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__options_commands] )) ||
_kubectl-ipam__subcmd__options_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam options commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__plan_commands] )) ||
_kubectl-ipam__subcmd__plan_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam plan commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__pools_commands] )) ||
_kubectl-ipam__subcmd__pools_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam pools commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__quarantine_commands] )) ||
_kubectl-ipam__subcmd__quarantine_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam quarantine commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry_commands] )) ||
_kubectl-ipam__subcmd__registry_commands() {
    local commands; commands=(
'list:List the registries, the management clusters that use them, and who has how many blocks' \
'check:Show who has the blocks of the addresses in use of a network\: free blocks are taken first, a block of another management cluster is a conflict' \
'return:Return a block of this management cluster without an address in use, before spec.blocks.keepSeconds of its network is over' \
'release:Delete the records of a management cluster that no longer exists\: others can take its blocks' \
'adopt:Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has\: it was built again' \
'create-network:Write the size and the quarantine of the blocks of a network into the registry, before a management cluster does' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'kubectl-ipam registry commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__adopt_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry adopt commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__check_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry check commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__create-network_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__create-network_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry create-network commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help_commands() {
    local commands; commands=(
'list:List the registries, the management clusters that use them, and who has how many blocks' \
'check:Show who has the blocks of the addresses in use of a network\: free blocks are taken first, a block of another management cluster is a conflict' \
'return:Return a block of this management cluster without an address in use, before spec.blocks.keepSeconds of its network is over' \
'release:Delete the records of a management cluster that no longer exists\: others can take its blocks' \
'adopt:Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has\: it was built again' \
'create-network:Write the size and the quarantine of the blocks of a network into the registry, before a management cluster does' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'kubectl-ipam registry help commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__adopt_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help adopt commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__check_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help check commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__create-network_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__create-network_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help create-network commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__help_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help help commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__list_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help list commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__release_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help release commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__return_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__help__subcmd__return_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry help return commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__list_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry list commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__release_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry release commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__registry__subcmd__return_commands] )) ||
_kubectl-ipam__subcmd__registry__subcmd__return_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam registry return commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__reserve_commands] )) ||
_kubectl-ipam__subcmd__reserve_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam reserve commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__show_commands] )) ||
_kubectl-ipam__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam show commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__unreserve_commands] )) ||
_kubectl-ipam__subcmd__unreserve_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam unreserve commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__version_commands] )) ||
_kubectl-ipam__subcmd__version_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam version commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__web_commands] )) ||
_kubectl-ipam__subcmd__web_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam web commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__who_commands] )) ||
_kubectl-ipam__subcmd__who_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam who commands' commands "$@"
}

if [ "$funcstack[1]" = "_kubectl-ipam" ]; then
    _kubectl-ipam "$@"
else
    compdef _kubectl-ipam kubectl-ipam
fi
