# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kubectl_ipam_global_optspecs
    string join \n context= kubeconfig= n/namespace= A/all-namespaces o/output= no-color as= as-group= as-uid= cluster= user= s/server= token= request-timeout= certificate-authority= insecure-skip-tls-verify tls-server-name= v/v= h/help V/version
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
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -s V -l version -d 'Print version'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "pools" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "pool" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "list" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "get" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "networks" -d 'List the networks, with their pools that join or leave'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "network" -d 'List the networks, with their pools that join or leave'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "who" -d 'Show who holds an address or a prefix, or which addresses a claim, machine or Cluster has'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "history" -d 'Show who had an address, and when, according to an allocation log of the manager. No cluster is read'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "claims" -d 'List claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "claim" -d 'List claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "clusters" -d 'List the Clusters of Cluster API with their addresses: those that a ClusterAddressing has allocated, those of the machines, and slices'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "cluster" -d 'List the Clusters of Cluster API with their addresses: those that a ClusterAddressing has allocated, those of the machines, and slices'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "plan" -d 'Show whether the pools have room for a rollout of each MachineDeployment, MachineSet, control plane and MachinePool, with the maximum of the autoscaler'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "show" -d 'Show a pool: ranges, counts, the next addresses, a map of its addresses, holders, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "doctor" -d 'Show the state of each part of the provider, and what is wrong with it, with pools and with claims that wait; with the repair'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "web" -d 'Serve a web page on this machine: pools, a map of their addresses, search, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "reserve" -d 'Reserve an address that is not in use: exclude it from a pool, or keep it for a claim'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "unreserve" -d 'Delete the reservation of an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "quarantine" -d 'Quarantine an address at which another host answers: no claim gets it before the end. An address in use stays with its claim, and is quarantined when the claim is deleted'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "registry" -d 'Show the registries of blocks that management clusters share; check a network before it shares its blocks; release the blocks of a management cluster that is gone'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "export" -d 'Write pools and the reservations of users in them as manifests'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "adopt" -d 'Write reservations for addresses that Machines report and no IPAddress has, as manifests: each is for the claim that will request the address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "convert" -d 'Write the pools, reservations and networks of a table, or what another provider has in the cluster, as manifests'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "options" -d 'List the flags of the connection, which all commands have'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "version" -d 'Print the version of this program'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pools" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand pool" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand networks" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand network" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand who" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l from -d 'File with the lines of the log; `-` is the standard input' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l pool -d 'Only claims of this pool: NAME, NAMESPACE/NAME or KIND/NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l cluster-name -d 'Only claims of this Cluster of Cluster API' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l waiting -d 'Only claims without an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s w -l watch -d 'Print what changes until interrupted'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claims" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l pool -d 'Only claims of this pool: NAME, NAMESPACE/NAME or KIND/NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l cluster-name -d 'Only claims of this Cluster of Cluster API' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l waiting -d 'Only claims without an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s w -l watch -d 'Print what changes until interrupted'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand claim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand clusters" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand cluster" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l machine-deployment -d 'Only this MachineDeployment' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l replicas -d 'Its number of replicas, instead of that in the cluster and the maximum of the autoscaler' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l wait-duration -d 'How long to wait, for example 30s or 5m' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l errors -d 'Only errors'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l wait -d 'Wait until the provider works: no part has an error but for pools and claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l port -d 'Port on 127.0.0.1; 0 selects a free one' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l no-open -d 'Do not open the browser'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand web" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l for -d 'The claim that gets the address: NAMESPACE/NAME, or NAME in the namespace of the pool. Without it, no claim gets the address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l dry-run -d '`server` lets the API server check the reservation, without creating it. `client` only prints it' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand reserve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l dry-run -d '`server` lets the API server check the change, without making it. `client` only prints it' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s y -l yes -d 'Do not ask before the deletion of a reservation whose address is in use or cools down'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand unreserve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l pool -d 'The pool, if several contain the address: NAME, NAMESPACE/NAME or KIND/NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l for -d 'How long no claim gets the address, from 1s to 720h' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l reason -d 'What was observed' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l dry-run -d '`server` lets the API server check the change, without making it. `client` only prints it' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand quarantine" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "list" -d 'List the registries, the management clusters that use them, and who has how many blocks'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "check" -d 'Show who has the blocks of the addresses in use of a network: free blocks are taken first, a block of another management cluster is a conflict'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "return" -d 'Return a block of this management cluster without an address in use, before spec.blocks.keepSeconds of its network is over'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "release" -d 'Delete the records of a management cluster that no longer exists: others can take its blocks'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "adopt" -d 'Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has: it was built again'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "create-network" -d 'Write the size and the quarantine of the blocks of a network into the registry, before a management cluster does'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and not __fish_seen_subcommand_from list check return release adopt create-network help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s l -l selector -d 'Label selector of the listed objects, for example environment=production' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l hub-kubeconfig -d 'Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l nats-server -d 'URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l no-headers -d 'Do not print the header of a table'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l registry -d 'Name of the IPRegistry; by default that of the network, or the only one' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l size -d 'Number of addresses or prefixes of a block; by default that of the network, or that of the other management clusters' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l hub-kubeconfig -d 'Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l nats-server -d 'URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l network -d 'The network; by default the only one in which this management cluster has the block' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l dry-run -d '`server` lets the API server check the change, `client` does not send it' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from return" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l cluster-id -d 'Identity of the management cluster in the registry' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l registry -d 'Name of the IPRegistry; by default the only one' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l dry-run -d '`client` prints what would be changed. A registry has no `server`' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l hub-kubeconfig -d 'Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l nats-server -d 'URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s y -l yes -d 'Do not ask'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l registry -d 'Name of the IPRegistry; by default the only one' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l dry-run -d '`client` prints what would be changed. A registry has no `server`' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l hub-kubeconfig -d 'Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l nats-server -d 'URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s y -l yes -d 'Do not ask'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from adopt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l size -d 'Number of addresses or prefixes of a block: a power of two' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l quarantine-seconds -d 'Seconds after the return of a block during which no other management cluster takes it; by default a week' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l registry -d 'Name of the IPRegistry; by default the only one' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l dry-run -d '`client` prints what would be changed. A registry has no `server`' -r -f -a "none\t'Objects are changed'
client\t'Nothing is sent to the API server'
server\t'The API server checks the change, but does not make it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l hub-kubeconfig -d 'Kubeconfig of a registry at another API server, instead of that in the Secret. It contains certificates and token' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l nats-server -d 'URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of a forwarded port; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from create-network" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the registries, the management clusters that use them, and who has how many blocks'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "check" -d 'Show who has the blocks of the addresses in use of a network: free blocks are taken first, a block of another management cluster is a conflict'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "return" -d 'Return a block of this management cluster without an address in use, before spec.blocks.keepSeconds of its network is over'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "release" -d 'Delete the records of a management cluster that no longer exists: others can take its blocks'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "adopt" -d 'Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has: it was built again'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "create-network" -d 'Write the size and the quarantine of the blocks of a network into the registry, before a management cluster does'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand registry; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l claim-name -d 'Name of the claim of a Machine that has none yet. {machine}, {infrastructure} and {pool} stand for the names of the Machine, of its infrastructure machine, and of the pool' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand adopt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l from -d 'The provider whose pools and addresses in the cluster are converted' -r -f -a "metal3\t'The IP address manager of Metal3'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l source -d 'Value of the label ipam.cluster.x-k8s.io/source of the objects; by default the name of the file without its extension, or that of the provider' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand convert" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand options" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l context -d 'Context of the kubeconfig' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l kubeconfig -d 'Path of the kubeconfig' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -s n -l namespace -d 'Namespace; by default that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -s o -l output -d 'Output format' -r -f -a "table\t'Text for 80 columns'
wide\t'Text with all columns'
json\t'JSON, one document'
yaml\t'YAML'
name\t'One resource name per line, without the namespace, as kubectl prints it'"
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l as -d 'User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l as-group -d 'Group to impersonate; can be repeated' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l as-uid -d 'UID to impersonate' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l cluster -d 'Cluster of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l user -d 'User of the kubeconfig, instead of that of the context' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -s s -l server -d 'Address and port of the API server' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l token -d 'Bearer token, instead of the credentials of the user' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l request-timeout -d 'How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0 is no limit' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l certificate-authority -d 'File with the certificate of the authority of the API server' -r -F
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l tls-server-name -d 'Name in the certificate of the API server; by default the name in its address' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -s v -l v -d 'Level of the log on the standard error: from 6 on each request, from 8 on with details' -r
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -s A -l all-namespaces -d 'All namespaces'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l no-color -d 'Disable colors. They are also disabled by NO_COLOR and without a terminal'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -l insecure-skip-tls-verify -d 'Do not verify the certificate of the API server: connections are not secure'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand version" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "pools" -d 'List the pools of all kinds, with their occupancy'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "networks" -d 'List the networks, with their pools that join or leave'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "who" -d 'Show who holds an address or a prefix, or which addresses a claim, machine or Cluster has'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "history" -d 'Show who had an address, and when, according to an allocation log of the manager. No cluster is read'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "claims" -d 'List claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "clusters" -d 'List the Clusters of Cluster API with their addresses: those that a ClusterAddressing has allocated, those of the machines, and slices'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "plan" -d 'Show whether the pools have room for a rollout of each MachineDeployment, MachineSet, control plane and MachinePool, with the maximum of the autoscaler'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "show" -d 'Show a pool: ranges, counts, the next addresses, a map of its addresses, holders, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "doctor" -d 'Show the state of each part of the provider, and what is wrong with it, with pools and with claims that wait; with the repair'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "web" -d 'Serve a web page on this machine: pools, a map of their addresses, search, and waiting claims'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "reserve" -d 'Reserve an address that is not in use: exclude it from a pool, or keep it for a claim'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "unreserve" -d 'Delete the reservation of an address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "quarantine" -d 'Quarantine an address at which another host answers: no claim gets it before the end. An address in use stays with its claim, and is quarantined when the claim is deleted'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "registry" -d 'Show the registries of blocks that management clusters share; check a network before it shares its blocks; release the blocks of a management cluster that is gone'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "export" -d 'Write pools and the reservations of users in them as manifests'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "adopt" -d 'Write reservations for addresses that Machines report and no IPAddress has, as manifests: each is for the claim that will request the address'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "convert" -d 'Write the pools, reservations and networks of a table, or what another provider has in the cluster, as manifests'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "options" -d 'List the flags of the connection, which all commands have'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "version" -d 'Print the version of this program'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and not __fish_seen_subcommand_from pools networks who history claims clusters plan show doctor web reserve unreserve quarantine registry export adopt convert options version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and __fish_seen_subcommand_from registry" -f -a "list" -d 'List the registries, the management clusters that use them, and who has how many blocks'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and __fish_seen_subcommand_from registry" -f -a "check" -d 'Show who has the blocks of the addresses in use of a network: free blocks are taken first, a block of another management cluster is a conflict'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and __fish_seen_subcommand_from registry" -f -a "return" -d 'Return a block of this management cluster without an address in use, before spec.blocks.keepSeconds of its network is over'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and __fish_seen_subcommand_from registry" -f -a "release" -d 'Delete the records of a management cluster that no longer exists: others can take its blocks'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and __fish_seen_subcommand_from registry" -f -a "adopt" -d 'Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has: it was built again'
complete -c kubectl-ipam -n "__fish_kubectl_ipam_using_subcommand help; and __fish_seen_subcommand_from registry" -f -a "create-network" -d 'Write the size and the quarantine of the blocks of a network into the registry, before a management cluster does'
