// Package credentials answers which secrets the calls of a tenant are made with.
//
// A file names them by tenant and kind; a [Store] reads it, and again when it
// changes. What always holds:
//
//   - Reading is strict. A version with a mistake is refused as a whole and the one
//     before it stays in force.
//   - Nothing that is said or logged repeats a value of the file, nor what stands
//     where a name belongs, but for the names of tenants and of files.
//   - A tenant whose secrets cannot be had gets a [HeldError], never the secrets of
//     somebody else.
package credentials
