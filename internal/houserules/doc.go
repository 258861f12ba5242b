// Package houserules keeps the rules of this repository that a compiler does not
// know: which package may import which, and what only some places may do. It
// holds nothing but tests. A rule that fails says in a sentence what it is for;
// whoever has a reason to change it changes the table in rules_test.go, where
// the change is seen.
package houserules
