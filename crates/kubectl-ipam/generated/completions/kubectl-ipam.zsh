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
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
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
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'-w[Print changes until interrupted]' \
'--watch[Print changes until interrupted]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
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
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':address -- An address such as 10.0.0.7, or a prefix such as fd00\:\:/64:_default' \
&& ret=0
;;
(claims)
_arguments "${_arguments_options[@]}" : \
'--pool=[Only claims of this pool\: NAME or KIND/NAME]:POOL:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--waiting[Only claims without an address]' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(free)
_arguments "${_arguments_options[@]}" : \
'-c+[Number of addresses]:COUNT:_default' \
'--count=[Number of addresses]:COUNT:_default' \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool\: NAME or KIND/NAME:_default' \
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
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool\: NAME or KIND/NAME:_default' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(completion)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':shell -- The shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(generate)
_arguments "${_arguments_options[@]}" : \
'--context=[Context of the kubeconfig]:NAME:_default' \
'--kubeconfig=[Path of the kubeconfig]:FILE:_files' \
'-n+[Namespace; by default that of the context]:NAME:_default' \
'--namespace=[Namespace; by default that of the context]:NAME:_default' \
'-o+[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'--output=[Output format]:FORMAT:((table\:"Text for 80 columns"
wide\:"Text with all columns"
json\:"JSON, one document"
yaml\:"YAML"
csv\:"Comma-separated values with a header (RFC 4180)"
name\:"One resource name per line"))' \
'(-n --namespace)-A[All namespaces]' \
'(-n --namespace)--all-namespaces[All namespaces]' \
'--no-color[Disable colors. They are also disabled by NO_COLOR and without a terminal]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':folder -- The folder:_files' \
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
(who)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(claims)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(free)
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
(completion)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(generate)
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
'who:Show who holds an address or a prefix' \
'claims:List claims' \
'free:Show the next addresses that a pool allocates' \
'show:Show a pool\: ranges, counts, a map of its addresses, holders, and waiting claims' \
'doctor:Find duplicate addresses, orphans, dangling references and other problems, with their repair' \
'completion:Print the completion script of a shell' \
'generate:Write the completions, the manual pages and the JSON schema to a folder' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'kubectl-ipam commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__claims_commands] )) ||
_kubectl-ipam__subcmd__claims_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam claims commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__completion_commands] )) ||
_kubectl-ipam__subcmd__completion_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam completion commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__doctor_commands] )) ||
_kubectl-ipam__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam doctor commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__free_commands] )) ||
_kubectl-ipam__subcmd__free_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam free commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__generate_commands] )) ||
_kubectl-ipam__subcmd__generate_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam generate commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help_commands] )) ||
_kubectl-ipam__subcmd__help_commands() {
    local commands; commands=(
'pools:List the pools of all kinds, with their occupancy' \
'who:Show who holds an address or a prefix' \
'claims:List claims' \
'free:Show the next addresses that a pool allocates' \
'show:Show a pool\: ranges, counts, a map of its addresses, holders, and waiting claims' \
'doctor:Find duplicate addresses, orphans, dangling references and other problems, with their repair' \
'completion:Print the completion script of a shell' \
'generate:Write the completions, the manual pages and the JSON schema to a folder' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'kubectl-ipam help commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__claims_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__claims_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help claims commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__completion_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__completion_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help completion commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__doctor_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help doctor commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__free_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__free_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help free commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__generate_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__generate_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help generate commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__help_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help help commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__pools_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__pools_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help pools commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__show_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help show commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__help__subcmd__who_commands] )) ||
_kubectl-ipam__subcmd__help__subcmd__who_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam help who commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__pools_commands] )) ||
_kubectl-ipam__subcmd__pools_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam pools commands' commands "$@"
}
(( $+functions[_kubectl-ipam__subcmd__show_commands] )) ||
_kubectl-ipam__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'kubectl-ipam show commands' commands "$@"
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
