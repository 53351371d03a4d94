// Package servers is a module of its own for the cluster's programs: etcd, the API
// server, and Knative's controllers. It keeps the versions of their dependencies out of
// the functions' modules and the test's.
package servers
