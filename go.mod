// There is no Go code here. clusterctl asks the Go module proxy for the versions of a provider, and the proxy serves tags
// of major version 2 under the path .../v2 if this file names that major version.
module capi-ipam/v2

go 1.26.8
