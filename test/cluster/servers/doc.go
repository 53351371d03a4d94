// Package servers is a module of its own for what a cluster is made of: etcd, the
// API server, and Knative's controllers. Their versions of everything are their own,
// and stay out of the functions' and the test's.
package servers
