// Package fdtable makes room for the files of a process before it needs them.
package fdtable
