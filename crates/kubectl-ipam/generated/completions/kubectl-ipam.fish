# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kubectl_ipam_global_optspecs
    string join \n context= kubeconfig= n/namespace= A/all-namespaces o/output= no-color h/help V/version
end

function __fish_kubectl_ipam_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kubectl_ipam_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kubectl_ipam_using_subcommand
    set -l cmd (__fish_kubectl_ipam_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s V -l version -d 'Print version'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "pools" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "networks" -d 'List the networks, with their pools that join or leave'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "who" -d 'Show who holds an address or a prefix'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "claims" -d 'List claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "free" -d 'Show the next addresses that a pool allocates'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "show" -d 'Show a pool: ranges, counts, a map of its addresses, holders, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "doctor" -d 'Find duplicate addresses, orphans, dangling references and other problems, with their repair'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "web" -d 'Serve a web page on this machine: pools, a map of their addresses, search, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "reserve" -d 'Reserve an address: exclude it from a pool, or keep it for a claim'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "unreserve" -d 'Delete the reservation of an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "export" -d 'Write pools and reservations in a form that import reads: CSV, JSON or YAML'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "import" -d 'Create and update pools and reservations from a file'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "completion" -d 'Print the completion script of a shell'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "generate" -d 'Write the completions, the manual pages and the JSON schema to a folder'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s w -l watch -d 'Print changes until interrupted'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l pool -d 'Only claims of this pool: NAME or KIND/NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l waiting -d 'Only claims without an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -s c -l count -d 'Number of addresses' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand free" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l port -d 'Port on 127.0.0.1; 0 selects a free one' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l no-open -d 'Do not open the browser'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l for -d 'The claim that gets the address: NAMESPACE/NAME, or NAME in the namespace of the pool. Without it, no claim gets the address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l dry-run -d '`server` lets the API server check the reservation, without creating it' -r -f -a "none\t'Objects are changed'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l dry-run -d '`server` lets the API server check the change, without making it' -r -f -a "none\t'Objects are changed'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s y -l yes -d 'Do not ask before a change that affects an address in use'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -l name -d 'Name of this import, which is stored as a label of the objects that it creates' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -l dry-run -d '`server` checks the file and lets the API server check each object, without changes' -r -f -a "none\t'Objects are changed'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -l prune -d 'Delete objects of the import with this name that the file does not contain'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand completion" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
csv\t'Comma-separated values with a header (RFC 4180)'
name\t'One resource name per line'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand generate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "pools" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "networks" -d 'List the networks, with their pools that join or leave'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "who" -d 'Show who holds an address or a prefix'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "claims" -d 'List claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "free" -d 'Show the next addresses that a pool allocates'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "show" -d 'Show a pool: ranges, counts, a map of its addresses, holders, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "doctor" -d 'Find duplicate addresses, orphans, dangling references and other problems, with their repair'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "web" -d 'Serve a web page on this machine: pools, a map of their addresses, search, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "reserve" -d 'Reserve an address: exclude it from a pool, or keep it for a claim'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "unreserve" -d 'Delete the reservation of an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "export" -d 'Write pools and reservations in a form that import reads: CSV, JSON or YAML'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "import" -d 'Create and update pools and reservations from a file'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "completion" -d 'Print the completion script of a shell'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "generate" -d 'Write the completions, the manual pages and the JSON schema to a folder'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who claims free show doctor web reserve unreserve export import completion generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
